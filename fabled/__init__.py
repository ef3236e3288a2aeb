"""fabled: install-and-forget memory for Claude Code."""

__version__ = "0.1.0"

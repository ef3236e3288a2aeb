"""Prune: decide, prove, act."""

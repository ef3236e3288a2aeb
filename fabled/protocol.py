"""What daemon and client must agree on: paths, numbers and limits of the socket.

HTTP/1.1 with JSON bodies over a Unix socket. Long work answers NDJSON, a line a
step. Every reply carries the protocol number in `PROTOCOL_HEADER`.
"""

from __future__ import annotations

PROTOCOL = 1
PROTOCOL_HEADER = "Fabled-Protocol"
JSON_TYPE = "application/json"
NDJSON_TYPE = "application/x-ndjson"
BLOCK_TYPE = "application/octet-stream"

MAX_QUERY_CHARS = 4096
"""Longer questions are answered by their first characters, and say so."""

MAX_BODY_BYTES = 1 << 20
"""Largest request body the daemon reads."""

MAX_RESULTS = 1000
DEFAULT_RESULTS = 10
DEFAULT_BUDGET = 8000
MAX_BUDGET = 1_000_000

LEVELS = ("thread", "session", "record")
KINDS = ("main", "subagent")
TERM_KINDS = ("operative", "target", "concept", "wikilink")
CARD_TYPES = ("decision", "workflow", "insight", "concept")
SORTS = ("relevance", "recent")

STATUS = "/v1/status"
SEARCH = "/v1/search"
RECALL = "/v1/recall"
THREADS = "/v1/threads/"
BLOCKS = "/v1/blocks/"
SESSIONS = "/v1/sessions"
INDEX = "/v1/index"
VAULT = "/v1/vault"
PRUNE = "/v1/prune"
UNDO = "/v1/undo"
HANDOFF = "/v1/handoff"
FORGET = "/v1/forget"
EVENTS = "/v1/events"
TERMS = "/v1/terms"
CITED = "/v1/cited/"
CARDS = "/v1/cards/"
AGENT = "/v1/agent/"
HOOK = "/v1/hook"
DOCTOR = "/v1/doctor"

SOCKET_PATH_LIMITS = {"darwin": 103, "linux": 107}
"""Longest socket path in bytes: sun_path less its closing NUL."""

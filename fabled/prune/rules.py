"""The rules, as data: what each removes, and why that is safe.

`evidence` names the measurement on the real client: each edit was made to a transcript,
which the client then resumed, and the messages it sent were compared with those of the
unedited file (versions 2.0.77, 2.1.112 and 2.1.332).
"""

from __future__ import annotations

from typing import NamedTuple

from fabled.prune.values import LEAN, TRANSPARENT


class Rule(NamedTuple):
    """One thing that a prune takes out.

    Attributes:
        drops: It drops whole records; otherwise it cuts inside them.
        removes: In words, for people.
        safe: Why nobody misses it.
        evidence: What was measured.
    """

    name: str
    level: str
    drops: bool
    removes: str
    safe: str
    evidence: str


RULES = (
    Rule(
        "before-boundary",
        TRANSPARENT,
        drops=True,
        removes="what stands before the last compact boundary, except what that one preserves",
        safe="the client reads only from the last boundary on; what it keeps alive is kept",
        evidence="9.1 MB -> 167 kB with equal messages when the preserved uuids stay",
    ),
    Rule(
        "tool-use-result",
        TRANSPARENT,
        drops=False,
        removes="the structured second copy of a tool's result",
        safe="the model gets the tool_result block; only diff previews are not drawn again",
        evidence="toolUseResult removed: equal",
    ),
    Rule(
        "api-request",
        TRANSPARENT,
        drops=True,
        removes="copies of requests: api-request, -shape, -blob, -resumed",
        safe="never read back; written again, about 40 kB, with the next turn",
        evidence="api-request, -shape, -blob dropped, all or any one kind: equal",
    ),
    Rule(
        "superseded",
        TRANSPARENT,
        drops=True,
        removes="metadata of which the client itself only keeps the newest",
        safe="the last one wins; titles near the head and the final last-prompt stay",
        evidence="the client's own garbage collection; all of these kinds dropped: equal",
    ),
    Rule(
        "progress",
        TRANSPARENT,
        drops=True,
        removes="progress of tools and hooks",
        safe="never sent; children are linked to the nearest record that stays",
        evidence="newer loaders drop and bridge it; relinked: equal on 2.0.77 and 2.1",
    ),
    Rule(
        "walls",
        TRANSPARENT,
        drops=True,
        removes="compact boundaries and summaries (mode extract only)",
        safe="what they summarised is still there and is linked again",
        evidence="the chain through logicalParentUuid is the one from before the compaction",
    ),
    Rule(
        "tool-result",
        LEAN,
        drops=False,
        removes="old results of tools, but for a line that names the record",
        safe="the call keeps its answer; the words are one fablectl block away",
        evidence="content replaced by text: resumes, exactly that text is sent",
    ),
    Rule(
        "tool-input",
        LEAN,
        drops=False,
        removes="the rest of long strings in old tool calls",
        safe="name and beginning stay; the whole is one fablectl block away",
        evidence="tool_use.input truncated: resumes, sent as it is",
    ),
    Rule(
        "image",
        LEAN,
        drops=False,
        removes="old images and documents, but for a line with their type and size",
        safe="a text block takes the place of each",
        evidence="image in a result or prompt -> text block: resumes, the text is sent",
    ),
    Rule(
        "thinking",
        LEAN,
        drops=False,
        removes="old thinking, whole, for all records of a message",
        safe="signatures leave with what they sign; the newest turns keep theirs",
        evidence="thinking blocks dropped: fine; altered under its signature: never done",
    ),
    Rule(
        "rendered",
        LEAN,
        drops=False,
        removes="the rendered form of attachments",
        safe="the client renders them again, in the words of its own version",
        evidence="it sends the rendered text as it stands: not transparent across versions",
    ),
    Rule(
        "recalled",
        LEAN,
        drops=False,
        removes="text that fabled itself recalled, but for what it cited",
        safe="it is in the transcript it came from; only our signature counts",
        evidence="text inside a block may change",
    ),
)
BY_NAME = {rule.name: rule for rule in RULES}

API_REQUESTS = frozenset(
    {"api-request", "api-request-shape", "api-request-blob", "api-request-resumed"}
)

BOUNDARY_CLEARED = frozenset(
    {"file-history-snapshot", "file-history-delta", "continued-in", "resume-head-vouch", "host-row"}
)
"""Metadata that the client's own collection drops before the last boundary."""

LAST_WINS = frozenset(
    {
        "agent-color", "agent-name", "agent-setting", "ai-title", "artifact-autoreact-ledger",
        "atis-latch", "attribution-snapshot", "bridge-session", "cost-state", "custom-title",
        "derived-from", "dev-mods", "ended-by-model", "history-suppression",
        "hybrid-organization", "isolation-latch", "last-prompt", "mode", "observer-ref",
        "permission-mode", "pr-link", "relocated", "repl-mode", "session-owner", "summary", "tag",
        "tools-used", "worktree-state",
    }
)  # fmt: skip
"""Metadata of which the newest counts; `summary` per leafUuid. Never queue-operation: it
holds what a person typed."""

TITLES = frozenset({"custom-title", "ai-title", "agent-name", "tag"})
LOOK = 65536
"""The client looks for titles in so many bytes at both ends of a file."""

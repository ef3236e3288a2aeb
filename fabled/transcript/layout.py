"""What a path below a projects folder is: a transcript, or something that is not.

Source: the layout measured in the client's versions 1.0.0 to 2.1.237. A name is
never decoded into a working folder: that encoding loses information.
"""

from __future__ import annotations

from typing import NamedTuple

SUFFIX = ".jsonl"


class Place(NamedTuple):
    """A transcript's place below its root.

    Attributes:
        folder: Name of the project folder, as the client wrote it.
        session: Id in the main file's name or the session folder's; None for a flat
            agent file, which names its session only inside.
        agent: Id in an agent file's name; None for a main transcript.
    """

    folder: str
    session: str | None
    agent: str | None


def place(relative: str) -> Place | None:
    """Classify a path relative to its root, `/` between the parts.

    Returns:
        None for what is no transcript: journals, tool results, memories, indexes,
        another program's temporary files.
    """
    parts = relative.split("/")
    name = parts[-1]
    if not name.endswith(SUFFIX) or ".tmp." in name or len(parts) < 2:
        return None
    stem = name.removesuffix(SUFFIX)
    agent = stem.removeprefix("agent-") if stem.startswith("agent-") else None
    if len(parts) == 2:
        return Place(parts[0], None if agent is not None else stem, agent)
    if agent is not None and parts[2] == "subagents":
        return Place(parts[0], parts[1], agent)
    return None


def meta_path(transcript: str) -> str:
    """Where the client keeps an agent file's description, `toolUseId` among it."""
    return transcript.removesuffix(SUFFIX) + ".meta.json"

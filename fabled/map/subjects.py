"""What a path is to the Map: a live transcript, or a strand of its generations.

And what the client's description of an agent, live or sealed, says of its transcript.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from fabled.errors import AccessDenied, GenerationDamaged, NotFound
from fabled.map.files import Subject
from fabled.map.reconcile import meta_state, sealed_meta, sealed_state
from fabled.transcript.identity import clean
from fabled.transcript.layout import SUFFIX, meta_path, place
from fabled.vault.images import Image

if TYPE_CHECKING:
    from fabled.system import Files
    from fabled.vault.catalogue import Strand
    from fabled.vault.sources import Sources
    from fabled.vault.values import Generation

META_LIMIT = 65536


def live_subject(root: str, path: str) -> Subject | None:
    """A live transcript; None when the path is none."""
    relative = path.removeprefix(root).lstrip("/")
    return _subject(root, root, path, relative, None)


def strand_subject(strand: Strand, vault_root: str) -> Subject | None:
    """A strand of a transcript's generations; None when it is of something else."""
    card = strand.head.card
    number = next(one.card.number for one in strand.chain if one.data_path == strand.path)
    if card.imported:
        stem = card.session
        folder = card.path.rpartition("/")[0].rpartition("/")[2]
        return Subject(strand.path, vault_root, folder, stem, None, number, stem, card.root)
    return _subject(vault_root, card.root, strand.path, card.path, number)


def _subject(
    root: str, live_root: str, path: str, relative: str, generation: int | None
) -> Subject | None:
    where = place(relative)
    if where is None:
        return None
    scope = f"{live_root}/{where.folder}"
    agent = None if where.agent is None else f"{scope}/{where.agent}"
    stem = relative.rpartition("/")[2].removesuffix(SUFFIX)
    return Subject(path, root, where.folder, where.session, agent, generation, stem, scope)


class _Meta(msgspec.Struct, rename="camel"):
    tool_use_id: str | None = None


class Description(NamedTuple):
    """What an agent's `.meta.json` says: the key of the tool call that started it."""

    tool: str | None
    state: str | None


NO_DESCRIPTION = Description(None, None)


def describe(disk: Files, transcript: str) -> Description:
    """Read the description beside an agent's transcript, if there is one."""
    path = meta_path(transcript)
    stat = disk.stat(path)
    if stat is None:
        return NO_DESCRIPTION
    try:
        meta = msgspec.json.decode(disk.read_small(path, META_LIMIT) or b"{}", type=_Meta)
    except (AccessDenied, msgspec.DecodeError):
        # A hint only: the main side names the agent as well. A later change is read again.
        return Description(None, meta_state(stat))
    tool = f"tool:{clean(meta.tool_use_id)}" if meta.tool_use_id else None
    return Description(tool, meta_state(stat))


def describe_sealed(sources: Sources, transcript: Generation) -> Description:
    """The same out of the Vault: the newest generation of the description."""
    catalogue = sources.catalogue
    if catalogue is None:
        return NO_DESCRIPTION
    sealed = sealed_meta(catalogue, transcript)
    if sealed is None:
        return NO_DESCRIPTION
    state = sealed_state(sealed)
    try:
        with Image(sources.files, catalogue.chain(sealed)) as image:
            meta = msgspec.json.decode(image.pread(0, META_LIMIT), type=_Meta)
    except (NotFound, AccessDenied, GenerationDamaged, msgspec.DecodeError):
        return Description(None, state)
    tool = f"tool:{clean(meta.tool_use_id)}" if meta.tool_use_id else None
    return Description(tool, state)

"""What the Vault holds, as values: one sealed generation, and where it came from."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

RAW, TAIL, PRUNED = "raw", "tail", "pruned"
KINDS = (RAW, TAIL, PRUNED)
FORMAT = 1


class Origin(NamedTuple):
    """The live file that a generation is an image of.

    Attributes:
        root: Its projects folder, without a slash at its end.
        path: Below the root, `/` between the parts.
    """

    root: str
    path: str

    @property
    def live(self) -> str:
        """The live file's whole path."""
        return f"{self.root}/{self.path}"


class Receipt(msgspec.Struct, omit_defaults=True):
    """What a prune did, kept in the sidecar of the generation it put in place.

    Attributes:
        before: Number of the generation whose image the live file had.
        rules: Rule name -> [records, bytes].
    """

    before: int
    level: str
    mode: str
    before_bytes: int
    after_bytes: int
    rules: dict[str, list[int]]
    pruned_ms: int


class Sidecar(msgspec.Struct):
    """The small immutable file beside a generation: enough to rebuild the Map from.

    Attributes:
        session: Id of the session the file belongs to, as far as its place says.
        number: N of its name.
        base: The generation whose image this tail continues; None for a whole image.
        offset: Where its bytes begin in the image: 0 but for a tail.
        size: Its own bytes, uncompressed.
        sha256: Of its own bytes.
        image_sha256: Of the whole image, from byte 0 to the end of this generation.
        stored: Bytes on disk.
        stored_sha256: Of the file on disk.
        mtime_ns: When the live file was changed last.
        mode: The live file's permissions.
        imported: It lies where `root` and `path` say, and is only read there.
        reason: Why it was sealed: quiet, expiring, by hand, before a prune, pruned, import ...
    """

    format: int
    root: str
    path: str
    session: str
    kind: str
    number: int
    base: int | None
    offset: int
    size: int
    sha256: str
    image_sha256: str
    compression: str
    stored: int
    stored_sha256: str
    mtime_ns: int
    mode: int
    sealed_ms: int
    reason: str
    receipt: Receipt | None = None
    imported: bool = False


class Generation(NamedTuple):
    """One sealed generation and where it lies; `folder` is its folder in the Vault."""

    folder: str
    card: Sidecar
    data_path: str

    @property
    def origin(self) -> Origin:
        """The live file it is an image of."""
        return Origin(self.card.root, self.card.path)

    @property
    def end(self) -> int:
        """Bytes of the whole image."""
        return self.card.offset + self.card.size


def as_json(generation: Generation) -> dict[str, Any]:
    """A generation as the socket shows it."""
    return {**msgspec.to_builtins(generation.card), "stored_path": generation.data_path}

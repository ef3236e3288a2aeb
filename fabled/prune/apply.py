"""Prune and undo: decide, prove, act; one code path for the job and for a person.

Nothing here looks at the configuration or at the clock on the wall: whoever calls says
what is wanted and has checked that it is time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from fabled.errors import (
    FabledError,
    FileChanged,
    GateRefused,
    NewerData,
    NothingToGain,
    PruneDeclined,
    ResumeCheckFailed,
    UndoImpossible,
)
from fabled.prune.check import problems
from fabled.prune.facts import PIECE
from fabled.prune.gate import prove
from fabled.prune.image import pieces
from fabled.prune.orders import Order, Replaced, Snapshot, snapshot
from fabled.prune.plan import forbidden, plan
from fabled.prune.removal import faults, removal
from fabled.prune.values import Decline, Options, Plan, Saving
from fabled.transcript.lines import parse_line
from fabled.vault.hashing import sha256_of
from fabled.vault.values import PRUNED, Generation, Origin, Receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fabled.map.fidelity import Spot
    from fabled.prune.door import Door
    from fabled.prune.gate import Proof
    from fabled.system import LiveFile, NewFile, OpenFile, System

HANDOVER = 1 << 22
"""An unfinished last line longer than this is not looked into."""


Doomed: TypeAlias = "Callable[[str | None, bytes], bool]"
"""Given a record's uuid and its bytes: whether it is to go."""


class Store(Protocol):
    """What a prune needs of the Vault."""

    def seal(
        self,
        origin: Origin,
        handle: OpenFile,
        size: int,
        reason: str,
        session: str | None = None,
    ) -> Generation:
        """Make the first `size` bytes an image."""

    def image(self, generation: Generation) -> OpenFile:
        """The whole image of a generation."""

    def keep_pruned(self, origin: Origin, new: OpenFile, size: int, receipt: Receipt) -> Generation:
        """Make the image about to be put in place a generation."""

    def discard(self, generation: Generation) -> None:
        """Take back a pruned image that was not put in place after all."""


class Bench(NamedTuple):
    """What prune and undo work with.

    Attributes:
        indexed: Has the Map index a generation now, and says which copies it knows of it.
        session_of: The session that a path belongs to, where its place does not say.
    """

    system: System
    store: Store
    door: Door
    indexed: Callable[[Generation], set[Spot]]
    session_of: Callable[[str], str | None]


class Wish(NamedTuple):
    """How much a prune has to gain to be worth it, beside its options."""

    options: Options
    min_gain: float = 0.0


class Preview(NamedTuple):
    """What a prune would do."""

    before_bytes: int
    after_bytes: int
    savings: tuple[Saving, ...]


class Pruned(NamedTuple):
    """What a prune did."""

    preview: Preview
    generation: Generation
    replaced: Replaced


class Undone(NamedTuple):
    """What an undo did: the prune's generation, sizes, and how much was appended since."""

    generation: Generation
    before_bytes: int
    after_bytes: int
    kept_bytes: int


def session_name(origin: Origin) -> str:
    """The id in a transcript's name."""
    return origin.path.rpartition("/")[2].removesuffix(".jsonl")


def preview(bench: Bench, origin: Origin, options: Options, output: str | None) -> Preview:
    """What a prune would do; the transcript is only read.

    Args:
        bench: What to work with.
        origin: The live transcript.
        options: Level, mode and what to protect.
        output: Where to write the image it would leave; the name must be free.

    Raises:
        PruneDeclined: It is left alone.
        NotFound: There is no such file.
        NewerData: The output's name is taken.
    """
    files = bench.system.files
    with files.open_live(origin.live) as live:
        shot = snapshot(live, origin.live)
        decided = _decide(live, shot, origin, options)
        if output is not None:
            with files.create(output) as new:
                for piece in pieces(live, decided):
                    new.write(piece)
                new.write(live.pread(shot.size, live.stat().size - shot.size))
                new.sync()
                if not new.publish(output):
                    raise NewerData(f"{output} is there already")
    return Preview(shot.size, decided.after_bytes, decided.savings)


def prune(bench: Bench, origin: Origin, wish: Wish, now_ms: int) -> Pruned:
    """Prune one live transcript: the ten steps.

    Raises:
        PruneDeclined: Of a kind that is left alone.
        NothingToGain: Too little.
        GateRefused: No proof.
        ResumeCheckFailed: The new image would not resume as the old one.
        FileBusy: Somebody writes to it.
        FileChanged: It changed meanwhile.
        DiskFull: No room. In every case the live file is as it was.
    """
    live = bench.system.files.open_live(origin.live)
    try:
        shot = snapshot(live, origin.live)
        decided = _decide(live, shot, origin, wish.options)
        _worth(shot, decided, wish)
        proof = _backed_up(bench, origin, live, shot)
        receipt = _receipt(proof, decided, wish.options, now_ms)
        order, kept = _order(bench, origin, live, proof, decided, receipt, wish.options)
    except BaseException:
        live.close()
        raise
    try:
        replaced = bench.door.replace(live, shot, order)
    except FabledError:  # anything else leaves it to the next start to tell what happened
        for generation in kept:
            bench.store.discard(generation)
        raise
    found = Preview(shot.size, decided.after_bytes, decided.savings)
    return Pruned(found, kept[0], replaced)


def _decide(live: LiveFile, shot: Snapshot, origin: Origin, options: Options) -> Plan:
    stat = live.stat()
    rest = live.pread(shot.size, min(HANDOVER, stat.size - shot.size))
    if rest and parse_line(rest, finished=False).torn is not None:
        raise PruneDeclined(f"{shot.path} ends in the middle of a record; it is left alone")
    decided = plan(live, shot.size, session_name(origin), options)
    if isinstance(decided, Decline):
        raise PruneDeclined(f"{shot.path}: {decided.message}")
    return decided


def _worth(shot: Snapshot, decided: Plan, wish: Wish) -> None:
    gain = shot.size - decided.after_bytes
    if gain <= 0 or gain < wish.min_gain * shot.size:
        raise NothingToGain(f"{shot.path}: a prune would save {gain} of {shot.size} bytes")


def _backed_up(bench: Bench, origin: Origin, live: LiveFile, shot: Snapshot) -> Proof:
    """Steps 3 to 5: seal to the last byte, index, prove."""
    size = live.stat().size
    session = bench.session_of(origin.live)
    generation = bench.store.seal(origin, live, size, "before a prune", session)
    return prove(live, shot, generation, bench.store, bench.indexed)


def about(origin: Origin, sealed: Generation) -> dict[str, object]:
    """What a note says of the file, and of the generation that holds what it was."""
    return {"origin": list(origin), "sealed": sealed.card.number}


def _receipt(proof: Proof, decided: Plan, options: Options, now_ms: int) -> Receipt:
    return Receipt(
        before=proof.generation.card.number,
        level=options.level,
        mode=options.mode,
        before_bytes=decided.size,
        after_bytes=decided.after_bytes,
        rules={saving.rule: [saving.records, saving.bytes] for saving in decided.savings},
        pruned_ms=now_ms,
    )


def _order(
    bench: Bench,
    origin: Origin,
    live: LiveFile,
    proof: Proof,
    decided: Plan,
    receipt: Receipt,
    options: Options,
) -> tuple[Order, list[Generation]]:
    """What the door is to do; the list is filled with the generation of the new image."""
    if proof.shot.size != decided.size or proof.shot.path != origin.live:
        raise GateRefused("the proof is not about this transcript")
    kept: list[Generation] = []

    def examine(new: NewFile) -> None:
        name = session_name(origin)
        wrong = problems(live, decided.size, new, decided.after_bytes, name, options)
        if wrong:
            raise ResumeCheckFailed(f"{origin.live}: {wrong[0]}")

    def before(new: NewFile) -> None:
        kept.append(bench.store.keep_pruned(origin, new, decided.after_bytes, receipt))

    order = Order(
        pieces=pieces(live, decided),
        length=decided.after_bytes,
        examine=examine,
        tail_fits=lambda tail: not forbidden(tail, decided),
        before=before,
        original=lambda: bench.store.image(proof.generation),
        note={"pruned_ms": receipt.pruned_ms, **about(origin, proof.generation)},
    )
    return order, kept


# --- removal ---


def remove(bench: Bench, origin: Origin, key: bytes, doomed: Doomed) -> int:
    """Take records out of a live transcript for good; returns how many bytes went.

    The mandatory backup is made as for a prune: whoever forgets destroys it afterwards.

    Raises:
        FabledError: What `prune` raises; the live file is as it was.
    """
    live = bench.system.files.open_live(origin.live)
    try:
        shot = snapshot(live, origin.live)
        decided = removal(live, shot.size, key, doomed)
        if not decided.edits:
            live.close()
            return 0
        proof = _backed_up(bench, origin, live, shot)
    except BaseException:
        live.close()
        raise

    def examine(new: NewFile) -> None:
        found = faults(live, shot.size, new, decided.after_bytes, lambda line: _in(line, doomed))
        if found:
            raise ResumeCheckFailed(f"{origin.live}: {found[0]}")

    order = Order(
        pieces=pieces(live, decided),
        length=decided.after_bytes,
        examine=examine,
        tail_fits=lambda tail: not forbidden(tail, decided),
        before=lambda _new: None,
        original=lambda: bench.store.image(proof.generation),
        note={"removal": proof.sha256, **about(origin, proof.generation)},
    )
    bench.door.replace(live, shot, order)
    return shot.size - decided.after_bytes


def _in(line: bytes, doomed: Doomed) -> bool:
    """Whether a line is a record that goes."""
    parsed = parse_line(line, finished=True)
    return any(
        piece.envelope is not None and doomed(piece.envelope.uuid, line[piece.start : piece.end])
        for piece in parsed.pieces
    )


# --- undo ---


def undo(bench: Bench, origin: Origin, lineage: list[Generation], undone: set[int]) -> Undone:
    """Take back the last prune of a transcript: the image before it, and all appended since.

    Args:
        bench: What to work with.
        origin: The live transcript.
        lineage: Its generations, oldest first.
        undone: Numbers of pruned generations that were taken back before.

    Raises:
        UndoImpossible: No prune, or the transcript does not begin with what it left.
        FileBusy: Somebody writes to it.
        FileChanged: It changed meanwhile.
        GenerationDamaged: The Vault no longer has the image; nothing was touched.
    """
    live = bench.system.files.open_live(origin.live)
    try:
        shot = snapshot(live, origin.live)
        pruned, before = _last_prune(bench.store, live, shot, lineage, undone)
        before_bytes = _before_bytes(pruned)
        proof = _backed_up(bench, origin, live, shot)
    except BaseException:
        live.close()
        raise
    appended = shot.size - pruned.end
    length = before_bytes + appended
    with bench.store.image(before) as image:
        order = Order(
            pieces=_undone(image, before_bytes, live, pruned.end, shot.size),
            length=length,
            examine=lambda new: _is_image(new, before, image, before_bytes),
            tail_fits=lambda _tail: True,
            before=lambda _new: None,
            original=lambda: bench.store.image(proof.generation),
            note={"undo": pruned.card.number, **about(origin, proof.generation)},
        )
        replaced = bench.door.replace(live, shot, order)
    kept = appended + replaced.tail + replaced.late
    return Undone(pruned, shot.size, length, kept)


def _before_bytes(pruned: Generation) -> int:
    receipt = pruned.card.receipt
    if receipt is None:
        raise UndoImpossible(f"{pruned.data_path} has no receipt")
    return receipt.before_bytes


def _last_prune(
    store: Store, live: LiveFile, shot: Snapshot, lineage: list[Generation], undone: set[int]
) -> tuple[Generation, Generation]:
    """The newest prune that the transcript still begins with, and the image before it."""
    numbers = {one.card.number: one for one in lineage}
    prunes = [
        one
        for one in reversed(lineage)
        if one.card.kind == PRUNED and one.card.receipt and one.card.number not in undone
    ]
    if not prunes:
        raise UndoImpossible(f"{shot.path} was not pruned")
    for one in prunes:
        if one.end <= shot.size and _prefix(live, one.end) == one.card.image_sha256:
            before = numbers.get(one.card.receipt.before if one.card.receipt else -1)
            if before is None:
                raise UndoImpossible(f"the image before the prune of {shot.path} is gone")
            size = _before_bytes(one)
            if size <= shot.size and _prefix(live, size) == _image_prefix(store, before, size):
                raise UndoImpossible(f"{shot.path} is already as it was before its prune")
            return one, before
    raise UndoImpossible(f"{shot.path} was rewritten since it was pruned")


def _image_prefix(store: Store, generation: Generation, size: int) -> str:
    with store.image(generation) as image:
        return _prefix(image, size)


def _prefix(live: OpenFile, size: int) -> str:
    return sha256_of(live.pread, size).sha256


def _range(source: OpenFile, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        piece = source.pread(start, min(PIECE, end - start))
        if not piece:
            raise FileChanged("the file is shorter than it was")
        start += len(piece)
        yield piece


def _undone(image: OpenFile, size: int, live: LiveFile, start: int, end: int) -> Iterator[bytes]:
    yield from _range(image, 0, size)
    yield from _range(live, start, end)


def _is_image(new: OpenFile, before: Generation, image: OpenFile, size: int) -> None:
    """The new file begins with the very image, and that is the one that was sealed."""
    whole = _prefix(image, before.end)
    if whole != before.card.image_sha256 or _prefix(new, size) != _prefix(image, size):
        raise UndoImpossible(f"the image of {before.data_path} is not what was sealed")


def refusal(fault: FabledError) -> dict[str, str]:
    """An error as a prune's answer carries it."""
    return {"code": fault.code, "message": fault.message, "hint": fault.hint}

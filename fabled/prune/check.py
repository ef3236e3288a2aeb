"""The resume check: two images compared, without trusting whoever made the second.

It reads both itself and knows nothing of the plan. What it finds is a sentence each; an
empty list means that a resume sends the same conversation, as far as can be told from
what was measured on the real client.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from fabled.prune import boundary, chain, splice
from fabled.prune.facts import TALK, Fact, Facts, facts
from fabled.prune.rules import API_REQUESTS, BOUNDARY_CLEARED, LAST_WINS, LOOK
from fabled.prune.values import EXTRACT, LEAN, Options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fabled.prune.boundary import Wall
    from fabled.prune.values import Source

SNAPSHOT = boundary.SNAPSHOT
_TITLE_KEYS = (b'"customTitle":"', b'"aiTitle":"')
MOST = 20
"""Problems reported; the first one is enough to stop."""


class _Side(NamedTuple):
    """One image, read."""

    source: Source
    size: int
    found: Facts
    places: dict[str, int]

    def raw(self, at: int) -> bytes:
        fact = self.found.records[at]
        return self.source.pread(fact.offset, fact.length)


def problems(
    before: Source,
    before_size: int,
    after: Source,
    after_size: int,
    session: str,
    options: Options,
) -> list[str]:
    """What is wrong with a new image; nothing, if it may take the place of the old one.

    Cost: reads both images, and what was said in both once more.
    """
    del session
    old, new = (_side(s, n, options) for s, n in ((before, before_size), (after, after_size)))
    check = _Check(old, new, options)
    return check.run()[:MOST]


def _side(source: Source, size: int, options: Options) -> _Side:
    found = facts(source, size, options.key)
    return _Side(source, size, found, chain.by_uuid(found.records))


class _Check:
    def __init__(self, old: _Side, new: _Side, options: Options) -> None:
        self._old = old
        self._new = new
        self._options = options
        self._wall: Wall | None = boundary.last(old.found.records, old.places, old.source)
        self._match: dict[int, int] = {}

    def run(self) -> list[str]:
        """Every problem, the ones that explain others first."""
        if self._new.size > self._old.size:
            return ["the new image is longer than the old one"]
        order = list(self._order())
        if order:
            return order
        found: list[str] = []
        for part in (
            self._dropped,
            self._damage,
            self._links,
            self._words,
            self._chain,
            self._metadata,
            self._ends,
        ):
            found += part()
        return found

    def _order(self) -> Iterator[str]:
        """Match each new record with an old one, in the same order; fills `_match`."""
        at = 0
        olds = self._old.found.records
        for place, fact in enumerate(self._new.found.records):
            while at < len(olds) and not self._same(olds[at], at, fact, place):
                at += 1
            if at == len(olds):
                yield f"record at {fact.offset} ({fact.kind}) is not in the old image, or not there"
                return
            self._match[place] = at
            at += 1

    def _same(self, old: Fact, at: int, new: Fact, place: int) -> bool:
        if (old.kind, old.uuid, old.message, old.timestamp, old.side, old.summary) != (
            new.kind,
            new.uuid,
            new.message,
            new.timestamp,
            new.side,
            new.summary,
        ):
            return False
        if new.uuid is not None:
            return True
        if new.kind == "last-prompt":
            return old.explicit == new.explicit and old.length >= new.length
        return old.length == new.length and self._old.raw(at) == self._new.raw(place)

    def _dropped(self) -> list[str]:
        kept = set(self._match.values())
        alive = self._alive()
        return [
            f"a record that must stay is gone: {fact.kind} {fact.uuid or f'at {fact.offset}'}"
            for at, fact in enumerate(self._old.found.records)
            if at not in kept and not self._may_go(at, fact, alive)
        ]

    def _alive(self) -> bool:
        """Whether what stands before the wall is still reached."""
        if self._wall is None or self._options.mode == EXTRACT:
            return True
        return not boundary.may_clear(self._old.found.records, self._old.places, self._wall)

    def _may_go(self, at: int, fact: Fact, alive: bool) -> bool:
        if fact.uuid is None:
            if fact.kind in API_REQUESTS or fact.kind in LAST_WINS:
                return True
            return not alive and self._before_wall(at) and fact.type in BOUNDARY_CLEARED
        if fact.kind == "progress":
            return True
        if not alive and self._before_wall(at):
            return fact.uuid not in (self._wall.preserved if self._wall else ())
        if self._options.mode == EXTRACT and (fact.boundary or fact.summary):
            return True
        if self._options.level != LEAN or fact.type != "assistant":
            return False
        thoughts, every = splice.thinking(self._old.raw(at))
        return thoughts > 0 and thoughts == every

    def _before_wall(self, at: int) -> bool:
        return self._wall is not None and at < self._wall.at

    def _damage(self) -> list[str]:
        if Counter(_bits(self._old)) != Counter(_bits(self._new)):
            return ["damaged bytes of the old image are not all in the new one"]
        return []

    def _links(self) -> list[str]:
        found: list[str] = []
        for place, at in self._match.items():
            new, old = self._new.found.records[place], self._old.found.records[at]
            if new.uuid is None or new.parent == old.parent:
                if self._hangs(new) and not self._hung(old, at):
                    found.append(f"record {new.uuid} hangs below one that is gone")
                continue
            if new.parent is None and self._has_ancestor(at):
                found.append(f"record {new.uuid} lost its parent")
            elif new.parent is not None and new.parent not in self._ancestors(at):
                found.append(f"record {new.uuid} hangs below {new.parent}, no ancestor of it")
            elif self._hangs(new) and new.parent in self._old.places:
                found.append(f"record {new.uuid} hangs below {new.parent}, which is gone")
        return found

    def _hangs(self, fact: Fact) -> bool:
        return fact.parent is not None and fact.parent not in self._new.places

    def _hung(self, old: Fact, at: int) -> bool:
        """It hung in the old image already, or is kept alive by the wall's own list."""
        return old.parent not in self._old.places or self._before_wall(at)

    def _ancestors(self, at: int) -> set[str | None]:
        """Everything above a record, through walls as well, and where a chain was stitched."""
        records, places = self._old.found.records, self._old.places
        seen: set[int] = {at}
        found: set[str | None] = set()
        here = at
        while True:
            fact = records[here]
            up = fact.parent or (fact.logical if fact.boundary else None)
            above = places.get(up or "")
            if above is None and fact.boundary and self._options.mode == EXTRACT:
                up = chain.earlier(records, here, ())
                found |= {record.uuid for record in records[:here]}
                above = places.get(up or "")
            found.add(up)
            if above is None or above in seen:
                return found
            seen.add(above)
            here = above

    def _has_ancestor(self, at: int) -> bool:
        """Whether anything above a record is still there."""
        return any(uuid in self._new.places for uuid in self._ancestors(at) if uuid)

    def _words(self) -> list[str]:
        """What was said: equal, or shortened where the level allows it."""
        found: list[str] = []
        lean = self._options.level == LEAN
        for place, at in self._match.items():
            fact = self._new.found.records[place]
            if fact.type not in TALK or fact.length == self._old.found.records[at].length:
                if fact.type in TALK and not self._equal_but_links(place, at):
                    found.append(f"record {fact.uuid} was changed in place")
                continue
            old, new = self._old.raw(at), self._new.raw(place)
            wrong = _changed(old, new, lean=lean)
            if wrong:
                found.append(f"record {fact.uuid}: {wrong}")
        return found

    def _equal_but_links(self, place: int, at: int) -> bool:
        old, new = self._old.raw(at), self._new.raw(place)
        return old == new or _message(old) == _message(new)

    def _chain(self) -> list[str]:
        """The chain a resume walks says the same things in the same order."""
        old_leaf = chain.leaf(self._old.found.records, self._old.places)
        new_leaf = chain.leaf(self._new.found.records, self._new.places)
        if old_leaf is None or new_leaf is None:
            return [] if old_leaf == new_leaf else ["there is no record left to resume from"]
        kept = set(self._match.values())
        old = self._spoken(self._old, old_leaf)
        new = self._spoken(self._new, new_leaf)
        if self._options.mode == EXTRACT:
            # The old chain ends at a wall that is no longer there: the new one goes on.
            new = new[: len([at for at in old if at in kept])]
        expected = [self._old.found.records[at].uuid for at in old if at in kept]
        got = [self._new.found.records[at].uuid for at in new]
        if expected != got:
            return ["the chain from the last message says other things than before"]
        return []

    def _spoken(self, side: _Side, leaf: int) -> list[int]:
        records = side.found.records
        return [at for at in chain.walk(records, side.places, leaf) if records[at].type in TALK]

    def _metadata(self) -> list[str]:
        """The newest of each kind is still there; the final checkpoint is still the last."""
        found: list[str] = []
        newest: dict[str, int] = {}
        for at, fact in enumerate(self._old.found.records):
            if fact.uuid is None and fact.kind in LAST_WINS:
                newest[fact.kind] = at
            if fact.kind == SNAPSHOT:
                newest[SNAPSHOT] = at
        kept = set(self._match.values())
        found += [f"the newest {kind} is gone" for kind, at in newest.items() if at not in kept]
        for key in _TITLE_KEYS:
            if _in_sight(self._old, key) and not _in_sight(self._new, key):
                found.append(f"{key.decode()} is out of the client's sight")
        return found

    def _ends(self) -> list[str]:
        olds, news = self._old.found.records, self._new.found.records
        if news and news[0].side and not olds[0].side:
            return ["the first line would hide the session"]
        return []


def _bits(side: _Side) -> list[bytes]:
    return [side.source.pread(one.offset, one.length) for one in side.found.damage]


def _in_sight(side: _Side, key: bytes) -> bool:
    head = side.source.pread(0, min(LOOK, side.size))
    tail = side.source.pread(max(0, side.size - LOOK), min(LOOK, side.size))
    return key in head or key in tail


def _message(raw: bytes) -> bytes:
    member = splice.members(raw).get("message")
    return b"" if member is None else raw[member.start : member.end]


def _changed(old: bytes, new: bytes, *, lean: bool) -> str | None:
    """What is wrong with a record that became shorter."""
    if _message(old) == _message(new):
        return None
    if not lean:
        return "what is sent to the model was changed"
    old_blocks, new_blocks = _outline(old), _outline(new)
    if not new_blocks:
        return "nothing is left of it"
    if new_blocks[-1][0] in {"thinking", "redacted_thinking"} and new_blocks != old_blocks:
        return "it ends in thinking"
    thoughts = [block for block in old_blocks if block[0] in {"thinking", "redacted_thinking"}]
    left = [block for block in new_blocks if block[0] in {"thinking", "redacted_thinking"}]
    if left not in ([], thoughts):
        return "thinking was altered, or only some of it taken"
    rest_old = [block[:2] for block in old_blocks if block not in thoughts]
    rest_new = [block[:2] for block in new_blocks if block not in left]
    return None if _alike(rest_old, rest_new) else "its blocks are not the ones it had"


def _outline(raw: bytes) -> list[tuple[str, str, bytes]]:
    """Each block as (type, ids, bytes); a string of content as one block of text."""
    where = splice.content(raw)
    if where is None:
        return []
    found = splice.blocks(raw, where)
    if not found:
        return [("text", "", raw[where.start : where.end])]
    outline: list[tuple[str, str, bytes]] = []
    for block in found:
        names = [block.text(raw, key) or "" for key in ("id", "name", "tool_use_id")]
        kind = block.text(raw, "type") or ""
        outline.append((kind, " ".join(names), raw[block.start : block.end]))
    return outline


def _alike(old: list[tuple[str, str]], new: list[tuple[str, str]]) -> bool:
    """The same blocks in the same order; a picture may have become text."""
    if len(old) != len(new):
        return False
    return all(
        a == b or (a[0] in {"image", "document"} and b[0] == "text")
        for a, b in zip(old, new, strict=True)
    )

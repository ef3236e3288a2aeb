"""Links between records: who hangs below whom, where a chain ends, and circles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fabled.prune.facts import CHAIN, TALK, Fact

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


def by_uuid(records: Sequence[Fact]) -> dict[str, int]:
    """The place of each uuid's last record: the client lets the last one win."""
    return {fact.uuid: at for at, fact in enumerate(records) if fact.uuid is not None}


def cyclic(records: Sequence[Fact]) -> bool:
    """Whether parents, logical ones included, lead round in a circle. Cost: O(records)."""
    parents: dict[str, set[str]] = {}
    for fact in records:
        if fact.uuid is not None:
            up = parents.setdefault(fact.uuid, set())
            up.update(
                link for link in (fact.parent, fact.logical if fact.boundary else None) if link
            )
    done: set[str] = set()
    return any(start not in done and _loops(start, parents, done) for start in parents)


def _loops(start: str, parents: dict[str, set[str]], done: set[str]) -> bool:
    path = {start}
    stack = [(start, iter(sorted(parents[start])))]
    while stack:
        here, rest = stack[-1]
        above = next(rest, None)
        if above is None:
            stack.pop()
            path.discard(here)
            done.add(here)
        elif above in path:
            return True
        elif above not in done and above in parents:
            path.add(above)
            stack.append((above, iter(sorted(parents[above]))))
    return False


def mixed(records: Sequence[Fact]) -> bool:
    """Whether sessions alternate in what was said: an id comes back after another one."""
    seen: set[str] = set()
    last: str | None = None
    for fact in records:
        if fact.type not in TALK or fact.side or fact.session is None or fact.session == last:
            continue
        if fact.session in seen:
            return True
        seen.add(fact.session)
        last = fact.session
    return False


def leaf(records: Sequence[Fact], places: dict[str, int]) -> int | None:
    """The record a resume begins at: the final checkpoint's, else the last that was said."""
    for fact in reversed(records):
        if fact.kind == "last-prompt" and fact.link in places:
            return places[str(fact.link)]
        if fact.kind == "last-prompt":
            break
    for at in range(len(records) - 1, -1, -1):
        if records[at].type in TALK and not records[at].side and records[at].uuid is not None:
            return at
    return None


def walk(records: Sequence[Fact], places: dict[str, int], start: int) -> list[int]:
    """The chain from a record to its root by parentUuid, leaf first."""
    chain = [start]
    seen = {start}
    while (above := places.get(records[chain[-1]].parent or "")) is not None:
        if above in seen:
            break
        seen.add(above)
        chain.append(above)
    return chain


def earlier(records: Sequence[Fact], before: int, dropped: Collection[int]) -> str | None:
    """The nearest earlier record of the main lane that stays: where a cut chain is stitched."""
    for at in range(before - 1, -1, -1):
        fact = records[at]
        if at not in dropped and fact.uuid is not None and not fact.side and fact.type in CHAIN:
            return fact.uuid
    return None

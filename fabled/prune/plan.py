"""Deciding what to take out of a transcript: values in, values out, nothing touched."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from fabled.prune import boundary, chain, splice
from fabled.prune.facts import TALK, Fact, facts
from fabled.prune.rules import API_REQUESTS, LAST_WINS, LOOK, RULES, TITLES
from fabled.prune.values import EXTRACT, LEAN, Decline, Edit, Options, Plan, Saving

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fabled.prune.splice import Splice
    from fabled.prune.values import Source

BLANK = b" \t\r"
_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
ROUNDS = 8
_DECLINES = {
    "cyclic": "its records hang below each other in a circle",
    "mixed": "records of another session are mixed into it",
    "damaged_tail": "it ends in damage",
    "empty": "nothing was said in it",
    "tangled": "some of its links are too short to be made anew",
}


def plan(source: Source, size: int, session: str, options: Options) -> Plan | Decline:
    """What to take out of an image, or why it is left alone.

    Args:
        source: The transcript.
        size: Bytes of it that count: whole lines only.
        session: The id in its name; records of other sessions in one run are fine.
        options: Level, mode and what to protect.

    Cost: reads the image, and each record that is changed once more.
    """
    del session  # a resumed copy keeps the ids it was copied with: only alternation is suspect
    found = facts(source, size, options.key)
    reason = _declined(found.records, damaged_tail=found.damaged_tail)
    if reason is not None:
        return Decline(reason, f"{_DECLINES[reason]}; it is left alone")
    image = _Image(source, size, found.records, options)
    chosen = image.choose()
    if chosen is None:
        return Decline("tangled", f"{_DECLINES['tangled']}; it is left alone")
    if not image.speaks(chosen):
        return Decline("empty", "nothing that was said in it would be left; it is left alone")
    return image.draw(chosen)


def _declined(records: Sequence[Fact], *, damaged_tail: bool) -> str | None:
    if not any(fact.type in {"user", "assistant"} for fact in records):
        return "empty"
    if damaged_tail:
        return "damaged_tail"
    if chain.cyclic(records):
        return "cyclic"
    return "mixed" if chain.mixed(records) else None


class _Choice(NamedTuple):
    """What goes: place -> rule; and the new parent of whoever hung below it."""

    dropped: dict[int, str]
    parents: dict[int, str | None]
    links: dict[int, str]


class _Image:
    def __init__(self, source: Source, size: int, records: list[Fact], options: Options) -> None:
        self._source = source
        self._size = size
        self._records = records
        self._options = options
        self._places = chain.by_uuid(records)
        self._wall = boundary.last(records, self._places, source)
        self._protected = self._protect()
        self._lines: dict[int, tuple[int, int] | None] = {}

    def _protect(self) -> int:
        """From which record on the lean level changes nothing."""
        prompts = [at for at, fact in enumerate(self._records) if fact.prompt]
        keep = self._options.keep_prompts
        if keep == 0:
            return len(self._records)
        return prompts[-keep] if len(prompts) >= keep else 0

    # --- which records go ---

    def choose(self) -> _Choice | None:
        """The records to drop; one whose child cannot be linked anew in its place stays."""
        dropped = {at: rule for at, rule in self._candidates() if self._line(at) is not None}
        for _ in range(ROUNDS):
            choice = self._relink(dropped)
            if isinstance(choice, _Choice):
                return choice
            dropped = {at: rule for at, rule in dropped.items() if at not in choice}
        return None

    def _candidates(self) -> Iterator[tuple[int, str]]:
        found: dict[int, str] = {}
        wall = self._wall
        resume = self._options.mode != EXTRACT
        if resume and wall is not None and boundary.may_clear(self._records, self._places, wall):
            found.update(dict.fromkeys(boundary.cleared(self._records, wall), "before-boundary"))
        newest = self._newest()
        for at, fact in enumerate(self._records):
            rule = self._rule(at, fact, newest)
            if rule is not None:
                found.setdefault(at, rule)
        if self._options.level == LEAN:
            for at in self._only_thinking():
                found.setdefault(at, "thinking")
        yield from found.items()

    def _rule(self, at: int, fact: Fact, newest: set[int]) -> str | None:
        if fact.uuid is None:
            if fact.kind in API_REQUESTS:
                return "api-request"
            early = fact.kind in TITLES and fact.offset < LOOK
            if fact.kind in LAST_WINS and at not in newest and not early and not fact.explicit:
                return "superseded"
            return None
        if fact.kind == "progress":
            return "progress"
        walls = self._options.mode == EXTRACT and (fact.boundary or fact.summary) and not fact.side
        return "walls" if walls else None

    def _newest(self) -> set[int]:
        latest: dict[tuple[str, str | None], int] = {}
        for at, fact in enumerate(self._records):
            if fact.kind in LAST_WINS and fact.uuid is None:
                latest[fact.kind, fact.link if fact.kind == "summary" else None] = at
        return set(latest.values())

    def _only_thinking(self) -> Iterator[int]:
        for members in self._thinkers().values():
            for at, (thoughts, all_) in members.items():
                if thoughts and thoughts == all_:
                    yield at

    def _thinkers(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Messages whose thinking may go: message id -> place -> (thinking, blocks)."""
        groups: dict[str, list[int]] = {}
        for at, fact in enumerate(self._records):
            if fact.type == "assistant" and fact.message is not None:
                groups.setdefault(fact.message, []).append(at)
        last = next(
            (f.message for f in reversed(self._records) if f.type == "assistant" and f.message),
            None,
        )
        found: dict[str, dict[int, tuple[int, int]]] = {}
        for message, places in groups.items():
            if message == last or not all(self._lean_may(at) for at in places):
                continue
            counts = {at: splice.thinking(self._raw(at)) for at in places}
            if sum(c[0] for c in counts.values()) < sum(c[1] for c in counts.values()):
                found[message] = counts
        return found

    def _lean_may(self, at: int) -> bool:
        fact = self._records[at]
        kept = self._wall is not None and fact.uuid in self._wall.preserved
        return fact.alone and fact.uuid is not None and at < self._protected and not kept

    def speaks(self, chosen: _Choice) -> bool:
        """Whether anything that was said is left to resume from."""
        return any(
            fact.type in TALK and fact.uuid is not None and not fact.side
            for at, fact in enumerate(self._records)
            if at not in chosen.dropped
        )

    # --- links ---

    def _relink(self, dropped: dict[int, str]) -> _Choice | set[int]:
        """New links for those whose parent goes; or the records that have to stay."""
        parents: dict[int, str | None] = {}
        links: dict[int, str] = {}
        stay: set[int] = set()
        for at, fact in enumerate(self._records):
            if at in dropped:
                continue
            above = self._places.get(fact.parent or "")
            if above in dropped and not self._behind_wall(above, at, dropped):
                new = self._ancestor(int(above or 0), dropped)
                if not fact.alone or _longer(new, fact.parent):
                    stay.add(int(above or 0))
                else:
                    parents[at] = new
            target = self._places.get(fact.link or "")
            if fact.kind == "last-prompt" and target in dropped:
                new = self._ancestor(int(target or 0), dropped)
                if new is None or not fact.alone or _longer(new, fact.link):
                    stay.add(int(target or 0))
                else:
                    links[at] = new
        return stay or _Choice(dropped, parents, links)

    def _behind_wall(self, above: int | None, at: int, dropped: dict[int, str]) -> bool:
        """A record before the wall whose parent goes with the rest keeps its old link.

        The client hangs preserved records below the summary itself; measured: equal.
        """
        wall = self._wall.at if self._wall is not None else -1
        return above is not None and dropped[above] == "before-boundary" and at < wall

    def _ancestor(self, at: int, dropped: dict[int, str]) -> str | None:
        """The nearest record above a dropped one that stays; a dangling link stays dangling."""
        seen: set[int] = set()
        here = at
        while here in dropped and here not in seen:
            seen.add(here)
            fact = self._records[here]
            up = fact.parent or (fact.logical if fact.boundary else None)
            above = self._places.get(up or "")
            if above is None and fact.boundary:
                return chain.earlier(self._records, here, dropped)
            if above is None:
                return up
            here = above
        return self._records[here].uuid

    # --- bytes ---

    def draw(self, chosen: _Choice) -> Plan:
        """The edits in file order, and what each rule saves."""
        thinkers = self._thinkers() if self._options.level == LEAN else {}
        edits: list[Edit] = []
        counts: dict[str, list[int]] = {rule.name: [0, 0] for rule in RULES}
        for at, fact in enumerate(self._records):
            if at in chosen.dropped:
                start, end = self._line(at) or (0, 0)
                edits.append(Edit(start, end - start, b""))
                _count(counts, chosen.dropped[at], end - start)
                continue
            cuts = self._cuts(at, fact, chosen, thinkers)
            for rule in {cut.rule for cut in cuts if cut.rule in counts}:
                saved = sum(c.end - c.start - len(c.data) for c in cuts if c.rule == rule)
                _count(counts, rule, saved)
            edits += [Edit(fact.offset + c.start, c.end - c.start, c.data) for c in cuts]
        saved = sum(edit.length - len(edit.data) for edit in edits)
        kept = {f.uuid for at, f in enumerate(self._records) if at not in chosen.dropped}
        gone = {self._records[at].uuid for at in chosen.dropped} - kept
        return Plan(
            self._size,
            tuple(edits),
            tuple(Saving(name, *pair) for name, pair in counts.items() if pair[0]),
            frozenset(uuid for uuid in gone if uuid is not None),
            self._size - saved,
        )

    def _cuts(
        self,
        at: int,
        fact: Fact,
        chosen: _Choice,
        thinkers: dict[str, dict[int, tuple[int, int]]],
    ) -> list[Splice]:
        """The cuts inside one record, none overlapping, in order."""
        if not fact.alone or not self._worth(at, fact, chosen):
            return []
        raw = self._raw(at)
        cuts: list[Splice | None] = []
        if at in chosen.parents:
            cuts.append(splice.value(raw, "parentUuid", chosen.parents[at], "links"))
        if at in chosen.links:
            cuts.append(splice.value(raw, "leafUuid", chosen.links[at], "links"))
        if fact.kind == "user" and b'"toolUseResult"' in raw and b'"tool_result"' in raw:
            cuts += splice.without(raw, ["toolUseResult"], "tool-use-result")
        if self._options.level == LEAN and self._lean_may(at):
            if fact.type == "attachment" and b'"rendered"' in raw:
                cuts += splice.without(raw, ["rendered"], "rendered")
            cuts += splice.lean(raw, str(fact.uuid), self._options.key)
            if at in thinkers.get(fact.message or "", {}):
                cuts += splice.without_thinking(raw)
        return sorted(cut for cut in cuts if cut is not None)

    def _worth(self, at: int, fact: Fact, chosen: _Choice) -> bool:
        """Whether a record needs to be looked into at all."""
        if at in chosen.parents or at in chosen.links:
            return True
        return fact.type in {"user", "assistant", "attachment"}

    def _raw(self, at: int) -> bytes:
        fact = self._records[at]
        return self._source.pread(fact.offset, fact.length)

    def _line(self, at: int) -> tuple[int, int] | None:
        """The line of a record, newline included; None when it may not be dropped."""
        if at not in self._lines:
            self._lines[at] = self._find_line(self._records[at])
        return self._lines[at]

    def _find_line(self, fact: Fact) -> tuple[int, int] | None:
        before = self._source.pread(fact.offset - 1, 1) if fact.offset else b"\n"
        end = fact.offset + fact.length
        after = self._source.pread(end, min(64, self._size - end))
        blank = len(after) - len(after.lstrip(BLANK))
        whole = before == b"\n" and after[blank : blank + 1] == b"\n"
        return (fact.offset, end + blank + 1) if fact.alone and whole else None


def _longer(new: str | None, old: str | None) -> bool:
    return new is not None and len(json.dumps(new)) > len(json.dumps(old or ""))


def _count(counts: dict[str, list[int]], rule: str, saved: int) -> None:
    counts[rule][0] += 1
    counts[rule][1] += saved


def forbidden(tail: bytes, decided: Plan) -> bool:
    """Whether bytes appended meanwhile name a record that the new image no longer holds.

    Any mention counts: a link, a metadata list, or words. Cost: one pass over the bytes, and
    a search for each evicted uuid of an odd form.
    """
    named = {found.decode() for found in _UUID.findall(tail)}
    if named & decided.evicted:
        return True
    odd = [uuid for uuid in decided.evicted if not _UUID.fullmatch(_bytes(uuid))] if tail else []
    return any(_bytes(uuid) in tail for uuid in odd)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")

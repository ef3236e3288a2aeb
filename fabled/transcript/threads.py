"""Which thread a record belongs to: one prompt and everything it caused.

A thread's key depends on ids inside the records only, so it survives appends,
rewrites, moves and copied sessions. The rules, the first that answers:

1. the record's own `promptId`, else that of the nearest ancestor that has one, the
   walk stopping at (and including) the nearest prompt;
2. `u:` and the uuid of that prompt; at a compact boundary the walk goes on along
   `logicalParentUuid`;
3. the walk ended on a parent that is not in the file, or in a circle: the thread of
   the nearest earlier record of the same lane that rules 1 and 2 place;
4. the walk ended on a record without parent: the first descendant in file order that
   rules 1 and 2 place; where there is none (and where rule 3 finds none), `head:` and
   the uuid of that last record;
5. a record without uuid: the thread of the record it names (messageId, leafUuid,
   snapshotMessageId), else of the nearest record with a uuid before it, else after it.

Measured on 166,307 public records: rules 1 and 2 place 96.1 %, rule 3 another 2.7 %.
Time stamps are never used: 4 % of them run backwards in file order.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from fabled.model import Placement

HEAD_RULE = 4
"""Rules up to this one come from the chain; 5 from a link or a neighbour."""


class Node(msgspec.Struct, gc=False, frozen=True):
    """A record as placement sees it.

    Attributes:
        offset: Where the record starts in its file.
        uuid: None for metadata records.
        parent: `parentUuid`; at a compact boundary with none, `logicalParentUuid`.
        link: The uuid a metadata record names.
        prompt_id: The client's own thread key.
        lane: Main chain or one agent's sidechain.
    """

    offset: int
    uuid: str | None
    parent: str | None
    link: str | None
    prompt_id: str | None
    is_prompt: bool
    lane: str


class Placed(NamedTuple):
    """What one `extend` settled: every new record, and the older ones that moved."""

    new: list[Placement | None]
    moved: dict[int, Placement | None]


class Placer:
    """Places the records of one file; grown in file order, equal to placing them at once.

    Cost: O(records) the first time; O(new records) after, unless a new record gives an
    older one another thread (a missing parent arrives, a uuid is written twice, the
    first prompt appears below a head), which costs O(records) again.
    """

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._placements: list[Placement | None] = []
        self._by_uuid: dict[str, int] = {}
        self._roots: list[int] = []
        self._wanted: set[str] = set()
        self._waiting: dict[str, list[int]] = {}
        self._heads: set[int] = set()
        self._lanes: dict[str, Placement] = {}
        self._chain: Placement | None = None

    def __len__(self) -> int:
        return len(self._nodes)

    def extend(self, nodes: list[Node]) -> Placed:
        """Place the records that follow the ones placed so far.

        Returns:
            The placements of `nodes`, and by offset those of older records that changed.
        """
        first = len(self._nodes)
        before = dict[int, Placement | None]()
        for count, node in enumerate(nodes):
            if self._moves_others(node):
                return self._replace_all(nodes[count:], first, before)
            self._append(node)
            for waiting in self._waiting.pop(node.uuid, ()) if node.uuid is not None else ():
                before.setdefault(waiting, self._placements[waiting])
                self._placements[waiting] = self._place_linked(self._nodes[waiting], waiting)
        return Placed(self._placements[first:], self._changes(before, first))

    def _changes(
        self, before: dict[int, Placement | None], first: int
    ) -> dict[int, Placement | None]:
        return {
            self._nodes[i].offset: self._placements[i]
            for i, was in before.items()
            if i < first and self._placements[i] != was
        }

    def _moves_others(self, node: Node) -> bool:
        if node.uuid is None:
            return False
        if node.uuid in self._by_uuid or node.uuid in self._wanted or node.parent == node.uuid:
            return True
        if self._chain is None and self._nodes:
            return True  # metadata records have been waiting for the first one with a uuid
        settles = node.prompt_id is not None or node.is_prompt
        parent = self._by_uuid.get(node.parent) if node.parent is not None else None
        return settles and parent is not None and self._roots[parent] in self._heads

    def _append(self, node: Node) -> None:
        index = len(self._nodes)
        self._nodes.append(node)
        if node.uuid is None:
            self._roots.append(-1)
            self._placements.append(self._place_linked(node, index))
            return
        parent = self._by_uuid.get(node.parent) if node.parent is not None else None
        self._by_uuid[node.uuid] = index
        root = index if parent is None else self._roots[parent]
        self._roots.append(root)
        placement = self._own(node)
        if placement is None and parent is not None:
            placement = self._placements[parent]
        if placement is None:
            placement = self._place_root(node, index)
        if parent is None and node.parent is not None:
            self._wanted.add(node.parent)
        self._placements.append(placement)
        self._chain = placement
        if placement.rule <= 2:
            self._lanes[node.lane] = placement

    def _own(self, node: Node) -> Placement | None:
        if node.prompt_id is not None:
            return Placement(node.prompt_id, 1)
        if node.is_prompt:
            return Placement(f"u:{node.uuid}", 2)
        return None

    def _place_root(self, node: Node, index: int) -> Placement:
        if node.parent is not None and node.lane in self._lanes:
            return Placement(self._lanes[node.lane].key, 3)
        if node.parent is None:
            self._heads.add(index)
        return Placement(f"head:{node.uuid}", HEAD_RULE)

    def _place_linked(self, node: Node, index: int) -> Placement | None:
        target = self._by_uuid.get(node.link) if node.link is not None else None
        if node.link is not None and target is None:
            self._waiting.setdefault(node.link, []).append(index)
        found = self._placements[target] if target is not None else self._chain
        return Placement(found.key, 5) if found is not None else None

    def _replace_all(
        self, rest: list[Node], first: int, moved: dict[int, Placement | None]
    ) -> Placed:
        before = {**dict(enumerate(self._placements[:first])), **moved}
        self._nodes += rest
        self._place_everything()
        return Placed(self._placements[first:], self._changes(before, first))

    def _place_everything(self) -> None:
        nodes = self._nodes
        self._by_uuid = {n.uuid: i for i, n in enumerate(nodes) if n.uuid is not None}
        last = [i if n.uuid is None else self._by_uuid[n.uuid] for i, n in enumerate(nodes)]
        walk = _Walk(nodes, self._by_uuid)
        self._roots = [-1 if n.uuid is None else walk.roots[last[i]] for i, n in enumerate(nodes)]
        settled = [walk.own[i] for i in last]
        by_root = self._settle_roots(settled)
        self._chain = None
        self._placements = []
        for i, node in enumerate(nodes):
            if node.uuid is None:
                self._placements.append(None)
                continue
            found = settled[i] or by_root[self._roots[i]]
            self._placements.append(found)
        self._place_metadata()

    def _settle_roots(self, settled: list[Placement | None]) -> dict[int, Placement]:
        first_below: dict[int, Placement] = {}
        lanes: dict[str, Placement] = {}
        earlier: dict[int, Placement] = {}
        roots = set(self._roots)
        for i, node in enumerate(self._nodes):
            placement = settled[i]
            if i in roots and node.lane in lanes:
                earlier[i] = lanes[node.lane]
            if placement is not None and node.uuid is not None:
                first_below.setdefault(self._roots[i], placement)
                lanes[node.lane] = placement
        self._lanes = lanes
        self._heads = set()
        found: dict[int, Placement] = {}
        for root in roots - {-1}:
            node = self._nodes[root]
            if node.parent is None and root in first_below:
                found[root] = Placement(first_below[root].key, HEAD_RULE)
            elif node.parent is not None and root in earlier:
                found[root] = Placement(earlier[root].key, 3)
            else:
                found[root] = Placement(f"head:{node.uuid}", HEAD_RULE)
                if node.parent is None:
                    self._heads.add(root)
        return found

    def _place_metadata(self) -> None:
        self._wanted = {
            n.parent
            for n in self._nodes
            if n.uuid is not None and n.parent is not None and n.parent not in self._by_uuid
        }
        self._waiting = {}
        nearest = next((p for p in self._placements if p is not None), None)
        for i, node in enumerate(self._nodes):
            if node.uuid is not None:
                nearest = self._chain = self._placements[i]
                continue
            target = self._by_uuid.get(node.link) if node.link is not None else None
            if node.link is not None and target is None:
                self._waiting.setdefault(node.link, []).append(i)
            found = self._placements[target] if target is not None else nearest
            self._placements[i] = Placement(found.key, 5) if found is not None else None


class _Walk:
    """For each record: what rules 1 and 2 say, and where its chain ends. Safe on cycles."""

    def __init__(self, nodes: list[Node], by_uuid: dict[str, int]) -> None:
        self._nodes = nodes
        self._by_uuid = by_uuid
        self.own: list[Placement | None] = [None] * len(nodes)
        self.roots: list[int] = [-1] * len(nodes)
        for i in sorted(by_uuid.values()):
            if self.roots[i] < 0:
                self._climb(i)

    def _climb(self, start: int) -> None:
        path: list[int] = []
        on_path: set[int] = set()
        here: int | None = start
        while here is not None and self.roots[here] < 0 and here not in on_path:
            path.append(here)
            on_path.add(here)
            parent = self._nodes[here].parent
            here = self._by_uuid.get(parent) if parent is not None else None
        if here is None:
            root, placement = path[-1], None
        elif here in on_path:
            # A circle has no end: its first record in the file stands for one.
            circle = path[path.index(here) :]
            root, placement = min(circle), self._round(circle)
        else:
            root, placement = self.roots[here], self.own[here]
        for i in reversed(path):
            placement = self._own(i) or placement
            self.own[i] = placement
            self.roots[i] = root

    def _round(self, circle: list[int]) -> Placement | None:
        for i in circle:
            found = self._own(i)
            if found is not None:
                return found
        return None

    def _own(self, i: int) -> Placement | None:
        node = self._nodes[i]
        if node.prompt_id is not None:
            return Placement(node.prompt_id, 1)
        if node.is_prompt:
            return Placement(f"u:{node.uuid}", 2)
        return None

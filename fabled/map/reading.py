"""One pass over (the rest of) a transcript, written as differences from what the Map holds."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

from fabled.map.store import DIGEST_BYTES, Copy, Target, add_copies, digest
from fabled.model import Damage, Placement
from fabled.transcript.identity import clean, pack, pack_bare
from fabled.transcript.records import Record, understand

if TYPE_CHECKING:
    from fabled.map.db import Row, WriteTxn
    from fabled.map.files import Facts
    from fabled.map.store import Ids
    from fabled.system import OpenFile
    from fabled.transcript.identity import Key
    from fabled.transcript.reader import Found
    from fabled.transcript.threads import Placer
    from fabled.transcript.veil import Veil
    from fabled.vault.tombstones import Tombstones

BATCH_RECORDS = 2000
BATCH_BYTES = 16 << 20


class _Old(NamedTuple):
    rec: int
    length: int
    line: int
    digest: bytes
    thread: int | None
    rule: int | None


class _Entry(NamedTuple):
    found: Found
    digest: bytes
    record: Record
    key: Key
    hidden: bool


class Ground(NamedTuple):
    """What is not indexed: recalls, secrets, and what was forgotten."""

    veil: Veil
    tombstones: Tombstones | None = None

    def hides(self, record: Record, key: Key, seen: bytes) -> bool:
        """Whether a record was forgotten: it still says where others belong, and no more."""
        if self.tombstones is None:
            return False
        return self.tombstones.record(key, seen if record.node.uuid is None else None)


class FileReading:
    """Takes a file's items in order; afterwards `copies`, `damage` and `spawns` agree with it.

    Args:
        txn: The transaction of this file.
        ids: Its interned texts.
        target: The file's row, session and attachment for new records.
        placer: Knows the records before `offset`.
        facts: Learns from every record; the caller saves it.
        ground: What is not taken in.
        offset: Where the reading starts.

    Attributes:
        touched: Records to settle.
        agents: Keys of agents whose spawning record came, went or moved.
        tentative: A record stands on an unterminated last line.
    """

    def __init__(
        self,
        txn: WriteTxn,
        ids: Ids,
        target: Target,
        placer: Placer,
        facts: Facts,
        ground: Ground,
        offset: int,
    ) -> None:
        self._txn = txn
        self._ids = ids
        self._target = target
        self._placer = placer
        self._facts = facts
        self._ground = ground
        self._batch: list[_Entry] = []
        self._batch_bytes = 0
        self.touched: set[int] = set()
        self.agents: set[str] = set()
        self.tentative = False
        self._offset = offset
        self._alike: dict[bytes, int] = {}
        self._old = self._begin(offset)

    def _begin(self, offset: int) -> dict[int, _Old]:
        file = self._target.file
        rows = self._txn.rows(
            "SELECT off, rec, len, line, digest, thread, rule FROM copies"
            " WHERE file = ? AND off >= ?",
            (file, offset),
        )
        self.agents.update(
            str(row[0])
            for row in self._txn.rows(
                "SELECT agent FROM spawns WHERE file = ? AND off >= ?", (file, offset)
            )
        )
        self._txn.run("DELETE FROM spawns WHERE file = ? AND off >= ?", (file, offset))
        self._txn.run("DELETE FROM damage WHERE file = ? AND off >= ?", (file, offset))
        return {row[0]: _Old(*row[1:]) for row in rows}

    def add(self, item: Found | Damage, handle: OpenFile) -> None:
        """Take the next item of the reader."""
        if isinstance(item, Damage):
            self._txn.run(
                "INSERT OR REPLACE INTO damage(file, off, reason, len, line) VALUES(?,?,?,?,?)",
                (self._target.file, item.offset, item.reason, item.length, item.line),
            )
            return
        self.tentative = self.tentative or item.tail
        seen = digest(item.raw) if item.raw is not None else _long_digest(handle, item)
        record = understand(item.envelope, item.offset, self._ground.veil)
        key = self._bare(seen) if record.node.uuid is None else pack(record.node.uuid)
        hidden = self._ground.hides(record, key, seen)
        if not hidden:
            self._facts.learn(record)
        self._batch.append(_Entry(item._replace(raw=None), seen, record, key, hidden))
        self._batch_bytes += len(record.text)
        if len(self._batch) >= BATCH_RECORDS or self._batch_bytes >= BATCH_BYTES:
            self._flush()

    def _bare(self, seen: bytes) -> bytes:
        """The key of the next record without uuid that has this digest."""
        stem = self._target.stem
        at = self._alike.get(seen)
        if at is None:
            at = 0
            while self._offset and self._before(pack_bare(stem, seen, at)):
                at += 1
        self._alike[seen] = at + 1
        return pack_bare(stem, seen, at)

    def _before(self, key: bytes) -> bool:
        """Whether that record has a copy before the place where this reading began."""
        found = self._txn.value(
            "SELECT 1 FROM records r JOIN copies c ON c.rec = r.id"
            " WHERE r.uuid = ? AND c.file = ? AND c.off < ?",
            (key, self._target.file, self._offset),
        )
        return found is not None

    def finish(self) -> None:
        """Write what is left, and take out the copies that the file no longer holds."""
        self._flush()
        file = self._target.file
        self._txn.many(
            "DELETE FROM copies WHERE file = ? AND off = ?", [(file, off) for off in self._old]
        )
        self.touched.update(old.rec for old in self._old.values())
        self._old = {}

    def _flush(self) -> None:
        placed = self._placer.extend([entry.record.node for entry in self._batch])
        self._move(placed.moved)
        fresh: list[Copy] = []
        for entry, placement in zip(self._batch, placed.new, strict=True):
            if entry.hidden:
                continue  # an old copy of it goes with the copies that are no longer there
            old = self._old.pop(entry.found.offset, None)
            if old is not None and self._same(entry, old):
                self._keep(entry, old, placement)
                continue
            if old is not None:
                self._drop(entry.found.offset, old)
            found = entry.found
            fresh.append(
                Copy(
                    entry.key,
                    found.offset,
                    found.length,
                    found.line,
                    entry.digest,
                    entry.record,
                    placement,
                )
            )
        self.touched |= add_copies(self._txn, self._ids, self._target, fresh)
        self._spawn()
        self._batch = []
        self._batch_bytes = 0

    def _same(self, entry: _Entry, old: _Old) -> bool:
        if (old.length, old.digest) != (entry.found.length, entry.digest):
            return False
        if entry.record.node.uuid is not None:
            return True
        # Another record of the same bytes may have gone from before it.
        known = self._txn.value("SELECT uuid FROM records WHERE id = ?", (old.rec,))
        return bool(known == entry.key)

    def _keep(self, entry: _Entry, old: _Old, placement: Placement | None) -> None:
        now = (self._ids.thread(placement), placement.rule if placement is not None else None)
        if (old.thread, old.rule) != now or old.line != entry.found.line:
            self._txn.run(
                "UPDATE copies SET thread = ?, rule = ?, line = ? WHERE file = ? AND off = ?",
                (*now, entry.found.line, self._target.file, entry.found.offset),
            )
            self.touched.add(old.rec)

    def _drop(self, offset: int, old: _Old) -> None:
        self._txn.run("DELETE FROM copies WHERE file = ? AND off = ?", (self._target.file, offset))
        self.touched.add(old.rec)

    def _move(self, moved: dict[int, Placement | None]) -> None:
        for offset, placement in moved.items():
            where = (self._target.file, offset)
            self._txn.run(
                "UPDATE copies SET thread = ?, rule = ? WHERE file = ? AND off = ?",
                (self._ids.thread(placement), placement.rule if placement else None, *where),
            )
            for (rec,) in self._txn.rows(
                "SELECT rec FROM copies WHERE file = ? AND off = ?", where
            ):
                self.touched.add(rec)
            for (agent,) in self._txn.rows(
                "SELECT agent FROM spawns WHERE file = ? AND off = ?", where
            ):
                self.agents.add(agent)

    def _spawn(self) -> None:
        rows: list[Row] = []
        for entry in self._batch:
            if entry.hidden:
                continue
            for agent in entry.record.spawns:
                scoped = agent if agent.startswith("tool:") else f"{self._target.folder}/{agent}"
                name = clean(scoped)
                rows.append((name, self._target.file, entry.found.offset))
                self.agents.add(name)
        self._txn.many("INSERT OR IGNORE INTO spawns(agent, file, off) VALUES(?,?,?)", rows)


def _long_digest(handle: OpenFile, found: Found) -> bytes:
    hashed = hashlib.sha256()
    at, end = found.offset, found.offset + found.length
    while at < end:
        data = handle.pread(at, min(1 << 20, end - at))
        if not data:
            break
        hashed.update(data)
        at += len(data)
    return hashed.digest()[:DIGEST_BYTES]

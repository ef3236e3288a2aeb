"""Making the Map agree with one transcript: one path, one decision, one transaction.

An unchanged file costs a stat. A grown one whose earlier bytes are the same is read
from where the last complete line ended. Anything else is read again from the start
and compared with what is known, so that only real differences are written. A crash
leaves the previous state, complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from fabled.errors import AccessDenied, GenerationDamaged, NotFound
from fabled.map import files
from fabled.map.attach import reattach, thread_of
from fabled.map.files import CLEAN, PENDING, TENTATIVE, FileRow, Subject
from fabled.map.fingerprint import fingerprint
from fabled.map.placers import Placers
from fabled.map.reading import FileReading, Ground
from fabled.map.reconcile import as_known, deleted
from fabled.map.store import Ids, Target, digest, remove_file, settle
from fabled.map.subjects import (
    NO_DESCRIPTION,
    Description,
    describe,
    describe_sealed,
    live_subject,
    strand_subject,
)
from fabled.transcript.reader import Reader
from fabled.vault.hashing import sha256_of
from fabled.vault.images import Image

if TYPE_CHECKING:
    from fabled.errors import FabledError
    from fabled.map.db import Writer, WriteTxn
    from fabled.system import FileStat, OpenFile
    from fabled.transcript.veil import Veil
    from fabled.vault.sources import Sources

UNCHANGED, READ, GONE, IGNORED = "unchanged", "read", "gone", "ignored"
ABSENT, REFUSED = "absent", "refused"


class Outcome(NamedTuple):
    """What `Indexer.index` did with one path.

    Attributes:
        action: unchanged, read, gone (forgotten), absent (out of sight: the root is not
            there), ignored (no transcript) or refused.
        bytes_read: Bytes of the transcript that were read to get there.
        records: Records found in those bytes.
        stale: Other files whose bytes were not what the Map says: read them afresh.
        refusal: Why the file could not be read; the Map keeps what it knew of it.
    """

    action: str
    bytes_read: int = 0
    records: int = 0
    stale: tuple[str, ...] = ()
    refusal: FabledError | None = None


class Indexer:
    """Brings single files up to date through the one writer. Not shared between threads.

    Args:
        writer: The connection that writes.
        sources: The file system and the Vault.
        veil: What is not indexed.
    """

    def __init__(self, writer: Writer, sources: Sources, veil: Veil) -> None:
        self._writer = writer
        self._sources = sources
        self._disk = sources.files
        self._veil = veil
        self._placers = Placers(veil)

    def index(self, root: str, path: str, *, afresh: bool = False) -> Outcome:
        """Make the Map agree with one path below a root.

        Args:
            root: The projects folder, without a slash at its end; or the Vault's folder.
            path: A path below it; or the path that names a strand.
            afresh: Compare every byte, even of a file that looks unchanged.

        Raises:
            DiskFull: The Map cannot grow; it is as it was.
            MapCorrupt: SQLite found damage.
        """
        if root == self._sources.vault_root:
            return self._index_strand(path, afresh=afresh)
        subject = live_subject(root, path)
        if subject is None:
            return Outcome(IGNORED)
        if self._sources.forgotten(subject.session or subject.stem):
            return self.forget(path)._replace(action=IGNORED)
        stat = self._disk.stat(path)
        if stat is None:
            return self._missing(root, path)
        if stat.kind != "file":
            # A link is not followed: what it points to is either below the root anyway, or
            # is nobody's transcript.
            return self.forget(path)
        about = NO_DESCRIPTION if subject.agent is None else describe(self._disk, path)
        return self._bring_up(subject, stat, about, afresh=afresh)

    def _index_strand(self, path: str, *, afresh: bool) -> Outcome:
        strand = self._sources.strand(path)
        subject = strand and strand_subject(strand, str(self._sources.vault_root))
        if strand is None or subject is None:
            return self.forget(path)
        if self._sources.forgotten(subject.session or subject.stem):
            return self.forget(path)._replace(action=IGNORED)
        about = NO_DESCRIPTION
        if subject.agent is not None:
            about = describe_sealed(self._sources, strand.head)
        with Image(self._disk, strand.chain) as image:
            stat = image.stat()
        return self._bring_up(subject, stat, about, afresh=afresh)

    def _bring_up(
        self, subject: Subject, stat: FileStat, about: Description, *, afresh: bool
    ) -> Outcome:
        with self._writer.transaction() as txn:
            row = files.load(txn, subject.path)
        if row is not None and not afresh and as_known(row, stat) and row.meta == about.state:
            return Outcome(UNCHANGED)
        return self._open(subject, about, afresh=afresh)

    def _open(
        self, subject: Subject, about: Description, *, afresh: bool, holes: bool = False
    ) -> Outcome:
        path = subject.path
        try:
            handle = self._sources.open_read(path, holes=holes)
        except NotFound:
            return self._missing(subject.root, path)
        except GenerationDamaged as refusal:
            return self._damaged(subject, about, refusal)
        except AccessDenied as refusal:
            return Outcome(REFUSED, refusal=refusal)
        with handle:
            try:
                if not holes:
                    self._whole(subject, handle, afresh=afresh)
                with self._writer.transaction() as txn:
                    row = files.load(txn, path) or files.add(txn, subject)
                    return self._read(
                        txn,
                        row._replace(tool=about.tool, meta=about.state),
                        subject,
                        handle,
                        afresh=afresh,
                    )
            except GenerationDamaged as refusal:
                self._placers.drop(path)
                damage = refusal
            except BaseException:
                self._placers.drop(path)
                raise
        return self._damaged(subject, about, damage)

    def _whole(self, subject: Subject, handle: OpenFile, *, afresh: bool) -> None:
        """Before a strand is read from its start: is every byte of it as it was sealed?"""
        strand = self._sources.strand(subject.path)
        if strand is None:
            return
        with self._writer.transaction() as txn:
            known = files.load(txn, subject.path)
        if known is not None and not afresh:
            return
        head = strand.head
        if sha256_of(handle.pread, head.end + 1).sha256 != head.card.image_sha256:
            raise GenerationDamaged(f"the image of {head.data_path} is not what was sealed")

    def _damaged(self, subject: Subject, about: Description, damage: FabledError) -> Outcome:
        """A strand cannot be read whole: keep what is known of it, or learn what can be read.

        Other copies are preferred from now on.
        """
        with self._writer.transaction() as txn:
            known = files.load(txn, subject.path) is not None
        if not known:
            self._open(subject, about, afresh=True, holes=True)
        with self._writer.transaction() as txn:
            touched = files.mark(txn, subject.path, unsound=True)
            stale = self._settle(txn, Ids(txn), touched, set())
        return Outcome(REFUSED, stale=stale, refusal=damage)

    def _missing(self, root: str, path: str) -> Outcome:
        return self.forget(path) if deleted(self._disk, root, path) else Outcome(ABSENT)

    def _read(
        self, txn: WriteTxn, row: FileRow, subject: Subject, handle: OpenFile, *, afresh: bool
    ) -> Outcome:
        stat = handle.stat()
        offset, line = (0, 0)
        if not afresh and _grown(row, stat, handle):
            offset, line = row.settled, row.settled_line
        facts = msgspec.structs.replace(row.facts) if offset else files.Facts()
        files.set_tool(txn, row.id, row.tool)
        touched = reattach(txn, [row.id], [])
        attached = thread_of(txn, row.id)
        ids = Ids(txn)
        placer = self._placers.take(row.path, handle, offset)
        session = row.session
        if session is None and subject.session is not None:
            session = files.session_id(txn, subject.session)
        target = Target(row.id, session, attached, subject.scope, subject.stem)
        ground = Ground(self._veil, self._sources.tombstones)
        reading = FileReading(txn, ids, target, placer, facts, ground, offset)
        handle.seek(offset)
        reader = Reader(handle, offset=offset, line=line)
        for item in reader:
            reading.add(item, handle)
        reading.finish()
        if stat.size < reader.end:
            # Appended while we read: that is read as well, so its time is the time that counts.
            after = handle.stat()
            stat = after if after.size == reader.end else stat._replace(size=reader.end)
        now = row._replace(
            session=_session(txn, subject, facts),
            attached=attached,
            dev=stat.dev,
            ino=stat.ino,
            size=stat.size,
            mtime_ns=stat.mtime_ns,
            settled=reader.settled,
            settled_line=reader.settled_line,
            fingerprint=fingerprint(handle, reader.settled),
            tail=TENTATIVE if reading.tentative else PENDING if reader.pending else CLEAN,
            facts=facts,
        )
        files.save(txn, now)
        touched |= files.mark(txn, row.path, unsound=False)
        touched |= reading.touched | reattach(txn, [row.id], reading.agents)
        if now.session != session or row.session not in (now.session, None):
            touched |= files.records_of(txn, row.id)
        stale = self._settle(txn, ids, touched, {row.session, now.session})
        if now.tail == TENTATIVE:
            self._placers.drop(row.path)
        else:
            self._placers.keep(row.path, placer, reader.settled, stat)
        return Outcome(READ, reader.end - offset, reader.counts.records, stale)

    def _settle(
        self, txn: WriteTxn, ids: Ids, touched: set[int], sessions: set[int | None]
    ) -> tuple[str, ...]:
        fetcher = Fetcher(self._sources)
        settle(txn, ids, touched, fetcher, self._veil)
        for session in sessions:
            if session is not None:
                files.refresh_session(txn, session)
        return tuple(sorted(fetcher.stale))

    def forget(self, path: str) -> Outcome:
        """Take a file that is gone out of the Map; records with another copy stay."""
        self._placers.drop(path)
        with self._writer.transaction() as txn:
            removed = remove_file(txn, path)
            if removed is None:
                return Outcome(IGNORED)
            touched = removed.records | reattach(txn, [], removed.agents)
            stale = self._settle(txn, Ids(txn), touched, {removed.session})
        return Outcome(GONE, stale=stale)

    def known_below(self, folder: str) -> list[str]:
        """The transcripts below a folder that the Map knows."""
        with self._writer.transaction() as txn:
            return files.below(txn, folder)

    def retry_stale(self) -> tuple[str, ...]:
        """Index the text of records again whose best copy could not be read before.

        Returns:
            Files that still do not hold what the Map says: read them afresh.
        """
        with self._writer.transaction() as txn:
            rows = txn.rows("SELECT id FROM records WHERE digest IS NULL")
            return self._settle(txn, Ids(txn), {int(row[0]) for row in rows}, set()) if rows else ()

    def release(self) -> None:
        """Give back memory that only a busy transcript needs."""
        self._placers.clear()
        self._writer.release_memory()


class Fetcher:
    """Reads single copies out of any transcript, and remembers the ones that were not there."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self.stale: set[str] = set()

    def __call__(self, path: bytes, offset: int, length: int, expected: bytes) -> bytes | None:
        """The bytes of one copy, checked against its digest; None when they are not there."""
        name = files.unblob(path)
        try:
            with self._sources.open_read(name) as handle:
                data = handle.pread(offset, length)
        except (NotFound, AccessDenied, GenerationDamaged):
            # Not an answer to anybody yet: the caller leaves the record for the next reconcile.
            self.stale.add(name)
            return None
        if len(data) != length or digest(data) != expected:
            self.stale.add(name)
            return None
        return data


def _grown(row: FileRow, stat: FileStat, handle: OpenFile) -> bool:
    return (
        (row.dev, row.ino) == (stat.dev, stat.ino)
        and stat.size > row.size
        and row.tail != TENTATIVE
        and fingerprint(handle, row.settled) == row.fingerprint
    )


def _session(txn: WriteTxn, subject: Subject, facts: files.Facts) -> int:
    name = subject.session
    if name is None:  # an old flat agent file names its session only inside
        name = facts.session or subject.stem
    return files.session_id(txn, name)

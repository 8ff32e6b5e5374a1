"""Reads audit files and says what is wrong with them: removed, changed, reordered, inserted or cut off records."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from worker.audit.chain import lock_name
from worker.audit.records import GENESIS, AnyRecord, AuditMark, Checkpoint, Opened, decode, files_of, hash_of
from worker.audit.signing import AuditKey

ProblemKind = Literal["removed", "changed", "reordered", "inserted", "truncated", "unsigned", "bad_signature"]


class Problem(Struct, frozen=True, kw_only=True):
    """One thing that is wrong. `line` counts from 1; 0 is the file as a whole.

    Not `certain`: it may have an innocent cause as well, which `message` names.
    """

    kind: ProblemKind
    file: str
    line: int
    message: str
    certain: bool = True


def verify(
    path: Path, *, key: bytes | None = None, heads: Mapping[str, Iterable[AuditMark]] | None = None
) -> list[Problem]:
    """All problems of the audit logs in a directory, or of one file (whose first record is then trusted).

    `key` checks the checkpoints. `heads` are marks that were kept elsewhere, by worker: a record that still has its
    mark is proven, and so are all before it. Without both, whoever can write the files can rewrite them from any
    record on, or cut off their end.

    Raises:
        OSError: the files cannot be read.
        ValueError: the key cannot be used.
    """
    checking = AuditKey(key) if key is not None else None
    heads = heads or {}
    if not path.is_dir():
        worker = path.name.rsplit(".", 2)[0]
        reading = _Reading(worker, checking, heads.get(worker, ()), before=None)
        reading.read_file(path, number=None)
        reading.finish(is_live=_is_locked(path.parent / lock_name(worker)), is_whole=False)
        return reading.problems
    problems = []
    logs = files_of(path)
    for worker in sorted(logs.keys() | heads.keys()):
        reading = _Reading(worker, checking, heads.get(worker, ()), before=AuditMark(0, GENESIS))
        expected = 1
        for number, file in logs.get(worker, []):
            if number > expected:
                reading.miss_files(file.name, expected, number - 1)
            reading.read_file(file, number)
            expected = number + 1
        reading.finish(is_live=_is_locked(path / lock_name(worker)), is_whole=True)
        problems += reading.problems
    return problems


class _Reading:
    """One worker's log on its way through the checks."""

    def __init__(
        self, worker: str, key: AuditKey | None, heads: Iterable[AuditMark], *, before: AuditMark | None
    ) -> None:
        self.problems: list[Problem] = []
        self._worker = worker
        self._key = key
        self._marks = {mark.seq: mark.hash for mark in heads}
        self._before = before
        self._last_seq = 0
        self._seen: set[int] = set()
        self._missing: dict[int, tuple[str, int]] = {}
        self._torn = b""
        self._is_closed = False
        self._file, self._line = "", 0

    def miss_files(self, file: str, first: int, last: int) -> None:
        """Files that should be before this one are not there."""
        self._file, self._line = file, 0
        retention = ", as when old files are put away" if first == 1 else ""
        self._problem("removed", f"files {first} to {last} before it are missing{retention}", certain=first > 1)
        self._before = None
        self._torn = b""

    def read_file(self, path: Path, number: int | None) -> None:
        """Checks each line of the next file; `number` is what its first record must say, None for any."""
        self._file = path.name
        before_it, self._torn = self._torn, b""
        with path.open("rb") as file:
            for self._line, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    self._torn = line
                    break
                self._read_line(line[:-1], before_it, number)
                before_it = b""

    def finish(self, *, is_live: bool, is_whole: bool) -> None:
        """What can be said only when all is read. `is_whole`: the last file is the log's last."""
        for seq, (file, line) in sorted(self._missing.items()):
            self._file, self._line = file, line
            self._problem("removed", f"record {seq}, which was before this line, is missing")
        for seq in sorted(seq for seq in self._marks if seq > self._last_seq and is_whole):
            self._line = 0
            self._problem("truncated", f"record {seq}, of which a mark was kept elsewhere, is missing at the end")
        if self._torn and not is_live:
            self._problem("truncated", "it ends in half a record, by a crash or by a cut", certain=False)
        elif not self._is_closed and not is_live and is_whole and self._seen:
            self._problem("truncated", "it ends without having been closed, by a crash or by a cut", certain=False)

    def _read_line(self, line: bytes, torn: bytes, number: int | None) -> None:
        try:
            record = decode(line)
        except ValueError:
            self._problem("changed", "this line is no record")
            self._before = None
            return
        if self._line == 1:
            self._check_opening(record, torn, number)
        mark = AuditMark(record.seq, hash_of(line))
        self._check_place(record, mark)
        if isinstance(record, Checkpoint):
            self._check_signature(record)
        self._is_closed = isinstance(record, Checkpoint) and record.reason == "closed"
        self._before = mark
        self._last_seq = max(self._last_seq, record.seq)
        self._seen.add(record.seq)

    def _check_opening(self, record: AnyRecord, torn: bytes, number: int | None) -> None:
        if not isinstance(record, Opened) or record.worker != self._worker or number not in (None, record.file):
            self._problem("removed", "the file does not begin with the record that opened it")
        elif number is not None and self._before is not None:
            stated = (record.torn_bytes, record.torn_sha256)
            if stated != ((len(torn), hashlib.sha256(torn).hexdigest()) if torn else (0, "")):
                self._problem("changed", "the half record at the end of the file before is not the one that was there")

    def _check_place(self, record: AnyRecord, mark: AuditMark) -> None:
        kept = self._marks.get(mark.seq)
        if kept is not None and kept != mark.hash:
            self._problem("changed", f"record {mark.seq} is not the one of which a mark was kept elsewhere")
        if record.seq in self._seen:
            self._problem("inserted", f"there is another record {record.seq}")
            return
        if self._missing.pop(record.seq, None):
            self._problem("reordered", f"record {record.seq} stands behind record {self._last_seq}")
            return
        before = self._before
        if before is None:
            return
        if record.seq == before.seq + 1:
            if record.prev != before.hash:
                self._problem(
                    "changed", f"record {before.seq} is not the one that record {record.seq} was written after"
                )
        elif record.prev == before.hash:
            self._problem("changed", f"record {record.seq} was written after record {before.seq}")
        for seq in range(before.seq + 1, record.seq):
            if seq not in self._seen:
                self._missing[seq] = (self._file, self._line)

    def _check_signature(self, checkpoint: Checkpoint) -> None:
        if self._key is None:
            return
        if checkpoint.alg == "none":
            message = "this checkpoint is not signed: the worker had no key, or the signature was taken off"
            self._problem("unsigned", message, certain=False)
        elif checkpoint.key != self._key.id:
            self._problem("bad_signature", f"this checkpoint is signed by another key, {checkpoint.key}")
        elif not self._key.verifies(checkpoint):
            self._problem("bad_signature", "the signature of this checkpoint is wrong")

    def _problem(self, kind: ProblemKind, message: str, *, certain: bool = True) -> None:
        self.problems.append(Problem(kind=kind, file=self._file, line=self._line, message=message, certain=certain))


def _is_locked(path: Path) -> bool:
    """Whether a running worker holds the lock. Asking takes it, shared, for a moment, which workers expect."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False

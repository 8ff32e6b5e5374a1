"""The files of one worker's audit log: each line names the hash of the line before, also from file to file."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from worker.audit.records import (
    GENESIS,
    AnyRecord,
    AuditMark,
    Checkpoint,
    CheckpointReason,
    Opened,
    decode,
    encode,
    file_name,
    files_of,
    hash_of,
)
from worker.audit.signing import AuditKey

log = logging.getLogger("toolreef")

MAX_LINE_BYTES = 64 * 1024
_LOCK_TRIES = 5
_LOCK_PAUSE_S = 0.02

Make = Callable[[int, int, str], AnyRecord]
"""(seq, at_ms, prev) -> the record with that place in the chain."""


class Chain:
    """Open for appending by one process only. All methods may raise OSError; what they write is whole or not there.

    Raises:
        BlockingIOError: another process has this worker's log open.
        OSError: the directory cannot be used.
        ValueError: the last record is unreadable, so that nothing can be chained to it.
    """

    def __init__(self, directory: Path, worker: str, key: AuditKey | None) -> None:
        self.worker = worker
        self.head = AuditMark(0, GENESIS)
        self.file_bytes = 0
        self.checkpoint_seq = 0
        self.checkpoint_at = time.monotonic()
        self._directory = directory
        self._key = key
        self._fd = -1
        self._file = 0
        self._ends_in_half = False
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._lock = os.open(directory / lock_name(worker), flags, 0o600)
        try:
            _lock_exclusively(self._lock)
            last_file, self.head, torn = read_end(directory, worker)
            self.checkpoint_seq = self.head.seq
            self.start_file(last_file + 1, torn)
        except BaseException:
            os.close(self._lock)
            raise

    def append(self, *makes: Make) -> AuditMark:
        """Writes records at the head, all with one write or none."""
        mark, lines = self.head, b""
        for make in makes:
            mark, line = self.link(make, mark)
            lines += line
        self.write(lines)
        self.head = mark
        return mark

    def link(self, make: Make, after: AuditMark) -> tuple[AuditMark, bytes]:
        """The record behind `after` as a line, not written yet."""
        seq = after.seq + 1
        line = encode(make(seq, time.time_ns() // 1_000_000, after.hash))
        return AuditMark(seq, hash_of(line)), line + b"\n"

    def write(self, line: bytes) -> None:
        """Appends a line, or several, whole or not at all."""
        if self._ends_in_half:
            raise OSError(0, "the audit file ends in half a record")
        try:
            written = os.write(self._fd, line)
            if written < len(line):
                # The disk is full in all likelihood, and this raises why.
                written += os.write(self._fd, line[written:])
            if written < len(line):
                raise OSError(0, "short write to the audit file")
        except OSError:
            # Half a record would swallow the next one. Where it can't be taken back (chattr +a), nothing more is
            # written to this file, and the next start vouches for the half in a new one.
            try:
                os.ftruncate(self._fd, self.file_bytes)
            except OSError:
                self._ends_in_half = True
            raise
        self.file_bytes += len(line)

    def sync(self) -> None:
        """Returns when all that was written has reached the disk."""
        os.fdatasync(self._fd)

    def checkpoint(self, reason: CheckpointReason) -> None:
        """Writes a checkpoint, signed if there is a key; also notices a file that was removed under our hands."""

        def make(seq: int, at_ms: int, prev: str) -> Checkpoint:
            plain = Checkpoint(
                seq=seq, at_ms=at_ms, prev=prev, worker=self.worker, file=self._file, reason=reason, alg="none"
            )
            return plain if self._key is None else self._key.signed(plain)

        self.append(make)
        self.checkpoint_seq, self.checkpoint_at = self.head.seq, time.monotonic()
        if reason == "interval" and os.fstat(self._fd).st_nlink == 0:
            log.critical("the audit file %s was removed while in use", file_name(self.worker, self._file))
            self.start_file(self._file + 1)

    def rotate(self) -> None:
        """Ends the file with a checkpoint and goes on in the next."""
        self.checkpoint("rotated")
        self.sync()
        self.start_file(self._file + 1)

    def start_file(self, number: int, torn: bytes = b"") -> None:
        """Goes on in a new file; `torn` is the half record that the file before it ends in."""

        def make(seq: int, at_ms: int, prev: str) -> Opened:
            return Opened(
                seq=seq,
                at_ms=at_ms,
                prev=prev,
                v=1,
                worker=self.worker,
                file=number,
                pid=os.getpid(),
                torn_bytes=len(torn),
                torn_sha256=hashlib.sha256(torn).hexdigest() if torn else "",
            )

        path = self._directory / file_name(self.worker, number)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        before = (self._fd, self._file, self.file_bytes, self._ends_in_half)
        self._fd = os.open(path, flags, 0o600)
        self._file, self.file_bytes, self._ends_in_half = number, 0, False
        try:
            self.append(make)
            _sync_directory(self._directory)
        except OSError:
            os.close(self._fd)
            self._fd, self._file, self.file_bytes, self._ends_in_half = before
            path.unlink()
            raise
        if before[0] >= 0:
            os.close(before[0])

    def close(self) -> None:
        """Gives the files free. Writes nothing."""
        os.close(self._fd)
        os.close(self._lock)


def _lock_exclusively(fd: int) -> None:
    """Takes the lock. Somebody who verifies the log holds it for a moment, so that one refusal is not believed."""
    for _ in range(_LOCK_TRIES - 1):
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_S)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def lock_name(worker: str) -> str:
    """The file whose lock says that a process has the worker's log open."""
    return f"{worker}.lock"


def read_end(directory: Path, worker: str) -> tuple[int, AuditMark, bytes]:
    """The number of a worker's last file (0 if none), its last whole record, and the half record behind that.

    Raises:
        ValueError: the last whole line is no record.
    """
    files = files_of(directory).get(worker, [])
    torn = b""
    for _, path in reversed(files):
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - 2 * MAX_LINE_BYTES, 0))
            *lines, half = file.read().split(b"\n")
        torn = torn or half
        if lines:
            return files[-1][0], AuditMark(decode(lines[-1]).seq, hash_of(lines[-1])), torn
    return (files[-1][0] if files else 0), AuditMark(0, GENESIS), torn


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

"""What a worker does is recorded here: every decision before its effect, every outcome after it."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from contracts.levels import Level
from contracts.tools import TOOLS, Effect
from worker.audit.chain import Chain, Make
from worker.audit.records import (
    MAX_ARGS_CHARS,
    AuditMark,
    Decided,
    Dropped,
    FileChange,
    Finished,
    all_printable,
    printable,
)
from worker.audit.signing import AuditKey

log = logging.getLogger("toolreef")

MAX_UNWRITTEN = 10_000
MAX_LISTED = 8
"""Paths and changed files that the record of one call names."""
_WORKER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

Reads = Literal["required", "best_effort"]


class AuditUnavailable(Exception):
    """The audit log cannot be written: what the record was about must not start."""


class AuditLog:
    """Made by `AuditLog.open`. Every record is one write; nothing is buffered here, so a killed worker loses none.

    That a call has ended can't be refused: while the disk is full such records wait in memory, chained already, and
    no effect starts. With `reads="best_effort"` reads go on meanwhile; with `"required"` they are refused like effects.
    """

    def __init__(
        self,
        chain: Chain,
        *,
        fsync: bool,
        reads: Reads,
        max_file_bytes: int,
        checkpoint_records: int,
        checkpoint_s: float,
    ) -> None:
        self._chain = chain
        self._fsync = fsync
        self._reads_required = reads == "required"
        self._max_file_bytes = max_file_bytes
        self._checkpoint_records = checkpoint_records
        self._checkpoint_s = checkpoint_s
        self._mutex = threading.Lock()
        self._unwritten: deque[bytes] = deque()
        self._held: dict[str, Make] = {}
        self._dropped = 0
        self._is_open = True

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        worker: str,
        key: bytes | None = None,
        fsync: bool = False,
        reads: Reads = "required",
        max_file_bytes: int = 64 * 1024 * 1024,
        checkpoint_records: int = 1000,
        checkpoint_s: float = 60.0,
    ) -> AuditLog:
        """Starts a new file behind the worker's earlier ones. `fsync`: decisions on effects reach the disk itself.

        `key` signs the checkpoints: the secret of an HMAC, or an Ed25519 key in PEM (needs the package cryptography).

        Raises:
            AuditUnavailable: the directory cannot be used, another process has this worker's log open, or the last
                record of the log is unreadable, so that nothing can be chained to it.
            ValueError: the worker's name or the key cannot be used.
        """
        if not _WORKER.fullmatch(worker):
            raise ValueError(f"not a name for an audit log: {worker[:80]!r}")
        signing = AuditKey(key) if key is not None else None
        if signing and not signing.can_sign:
            raise ValueError("the audit key is a public key, which cannot sign")
        try:
            chain = Chain(directory, worker, signing)
        except BlockingIOError:
            raise AuditUnavailable(f"another process has the audit log of {worker} open") from None
        except OSError as error:
            raise AuditUnavailable(f"the audit log of {worker} cannot be opened: {error.strerror}") from error
        except ValueError:
            raise AuditUnavailable(
                f"the last record of the audit log of {worker} is unreadable; look into it and move its files away"
            ) from None
        return cls(
            chain,
            fsync=fsync,
            reads=reads,
            max_file_bytes=max_file_bytes,
            checkpoint_records=checkpoint_records,
            checkpoint_s=checkpoint_s,
        )

    @property
    def worker(self) -> str:
        """Whose log this is."""
        return self._chain.worker

    @property
    def head(self) -> AuditMark:
        """The last record."""
        return self._chain.head

    @property
    def unwritten(self) -> int:
        """How many records wait in memory, or were dropped, because the disk refuses them."""
        return len(self._unwritten) + self._dropped

    def decided(
        self,
        job_id: str,
        tool: str,
        args_digest: str,
        verdict: str,
        policy: str,
        rule: str,
        attempt: int,
        *,
        args_text: str = "",
        version: str = "",
        approver: str = "",
        hold: bool = False,
    ) -> AuditMark:
        """Records a verdict, before anything of the call starts. `args_text` are the arguments already redacted.

        `hold` lets the verdict on a read, which changes nothing, wait for the record of its end: both are one write,
        before its answer leaves. A verdict on an effect is never held.

        Raises:
            AuditUnavailable: it could not be written, so the call must not start.
        """
        is_effect = tool not in TOOLS or TOOLS[tool].effect is Effect.EFFECT
        decided_ms = time.time_ns() // 1_000_000
        words = all_printable(job_id, tool, args_digest, verdict, policy, rule, version, approver)

        def make(seq: int, _: int, prev: str) -> Decided:
            return Decided(
                seq=seq,
                at_ms=decided_ms,
                prev=prev,
                job=words[0],
                tool=words[1],
                args=words[2],
                verdict=words[3],
                policy=words[4],
                rule=words[5],
                attempt=attempt,
                args_text=printable(args_text, MAX_ARGS_CHARS),
                version=words[6],
                approver=words[7],
            )

        if hold and not is_effect and self._is_open and not self.unwritten:
            self._held[job_id] = make
            return self._chain.head
        return self._record(make, required=is_effect or self._reads_required, sync=is_effect and self._fsync)

    def finished(
        self,
        job_id: str,
        kind: str,
        code: str | None,
        level: Level,
        taint: Level,
        *,
        files: Sequence[FileChange] = (),
        opened: Sequence[str] = (),
    ) -> AuditMark:
        """Records how a call ended. Never raises: what the disk refuses now is written before anything else later.

        `files` and `opened` are already redacted; a few of each are kept.
        """
        words = all_printable(job_id, kind, code or "")

        def make(seq: int, at_ms: int, prev: str) -> Finished:
            return Finished(
                seq=seq,
                at_ms=at_ms,
                prev=prev,
                job=words[0],
                outcome=words[1],
                code=words[2],
                level=level,
                taint=taint,
                files=list(files[:MAX_LISTED]),
                opened=[printable(path) for path in opened[:MAX_LISTED]],
            )

        held = self._held.pop(job_id, None)
        return self._record(*((make,) if held is None else (held, make)), required=False, sync=False)

    def close(self) -> None:
        """Writes the last checkpoint and gives the log free. Closing twice does nothing."""
        with self._mutex:
            if not self._is_open:
                return
            self._is_open = False
            try:
                self._write_unwritten()
                self._chain.append(*self._held.values())
                self._chain.checkpoint("closed")
                self._chain.sync()
            except OSError as error:
                log.critical("audit log of %s closed, %d records unwritten: %s", self.worker, self.unwritten, error)
            self._chain.close()

    def _record(self, *makes: Make, required: bool, sync: bool) -> AuditMark:
        with self._mutex:
            try:
                if not self._is_open:
                    raise OSError(0, "the audit log is closed")
                if self._unwritten or self._dropped:
                    self._write_unwritten()
                if self._chain.file_bytes >= self._max_file_bytes:
                    self._chain.rotate()
                mark = self._chain.append(*makes)
                if sync:
                    self._chain.sync()
            except OSError as error:
                log.critical("audit log of %s cannot be written: %s", self.worker, error)
                if required:
                    raise AuditUnavailable(f"the audit log cannot be written: {error.strerror}") from error
                return [self._keep(make) for make in makes][-1]
            self._checkpoint_if_due()
            return mark

    def _keep(self, make: Make) -> AuditMark:
        if len(self._unwritten) >= MAX_UNWRITTEN or self._dropped:
            self._dropped += 1
            return self._chain.head
        self._chain.head, line = self._chain.link(make, self._chain.head)
        self._unwritten.append(line)
        return self._chain.head

    def _write_unwritten(self) -> None:
        while self._unwritten:
            self._chain.write(self._unwritten[0])
            self._unwritten.popleft()
        if self._dropped:
            count = self._dropped
            self._chain.append(lambda seq, at_ms, prev: Dropped(seq=seq, at_ms=at_ms, prev=prev, count=count))
            self._dropped = 0

    def _checkpoint_if_due(self) -> None:
        chain = self._chain
        if (
            chain.head.seq - chain.checkpoint_seq >= self._checkpoint_records
            or time.monotonic() - chain.checkpoint_at >= self._checkpoint_s
        ):
            try:
                chain.checkpoint("interval")
            except OSError as error:
                log.critical("audit log of %s: no checkpoint could be written: %s", self.worker, error)

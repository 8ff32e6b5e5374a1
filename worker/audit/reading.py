"""Reads audit files as records, for people and other programs. Whether they are true is for `verify`."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from contracts.calls import read_job_id
from contracts.levels import Level
from worker.audit.records import AnyRecord, Decided, Finished, decode, files_of, hash_of


class Entry(Struct, frozen=True, kw_only=True):
    """One record, where it stands, and the hash of its line."""

    worker: str
    file: str
    line: int
    hash: str
    record: AnyRecord

    @property
    def job(self) -> str:
        """The job id of a call's record; empty for others."""
        return self.record.job if isinstance(self.record, Decided | Finished) else ""

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        where = {"worker": self.worker, "file": self.file, "hash": self.hash}
        return {**where, **msgspec.to_builtins(self.record)}


class Brought(Struct, frozen=True, kw_only=True):
    """The call that brought a session a level: how it ended, and what was decided of it."""

    finished: Entry
    decided: Entry | None


def read_entries(directory: Path, on_unreadable: Callable[[str, int], None]) -> Iterator[Entry]:
    """All records of all workers by time; those of one worker in their order. One file of each is open at a time.

    Raises:
        OSError: the files cannot be read.
    """
    logs = files_of(directory)
    return heapq.merge(
        *(_of_worker(worker, [path for _, path in logs[worker]], on_unreadable) for worker in sorted(logs)),
        key=lambda entry: entry.record.at_ms,
    )


def of_session(entries: Iterable[Entry], queue: str | None, session: str, call: str | None = None) -> Iterator[Entry]:
    """The records of a session's calls, or of one of them."""
    for entry in entries:
        try:
            job = read_job_id(entry.job)
        except ValueError:
            continue
        if job.session == session and queue in (None, job.queue) and call in (None, job.call):
            yield entry


def what_brought(entries: Iterable[Entry], level: Level) -> Brought | None:
    """The first of a session's calls whose answer had at least the level; None if there is none."""
    decided: dict[str, Entry] = {}
    for entry in sorted(entries, key=lambda entry: entry.record.at_ms):
        record = entry.record
        if isinstance(record, Decided):
            decided[record.job] = entry
        elif isinstance(record, Finished) and record.level >= level:
            return Brought(finished=entry, decided=decided.get(record.job))
    return None


def _of_worker(worker: str, paths: list[Path], on_unreadable: Callable[[str, int], None]) -> Iterator[Entry]:
    for path in paths:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                text = line.removesuffix(b"\n")
                try:
                    record = decode(text)
                except (ValueError, RecursionError):
                    on_unreadable(path.name, number)
                    continue
                yield Entry(worker=worker, file=path.name, line=number, hash=hash_of(text), record=record)

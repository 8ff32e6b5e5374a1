"""toolreef audit verify / show / export: the workers' audit logs, checked, searched, and handed on."""

from __future__ import annotations

import asyncio
import csv
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from contracts.auditor import Auditor, Head, TaintStep
from contracts.connection import UNREACHABLE
from contracts.levels import Level, read_level
from worker.audit import AuditMark, verify
from worker.audit.reading import Entry, of_session, read_entries, what_brought
from worker.audit.records import Decided, Finished, files_of
from worker.commands.connection import (
    FAILED,
    OK,
    UsageError,
    add_queue,
    add_session,
    complain,
    redis_of,
    say,
    settings_of,
)
from worker.settings import Settings

T = TypeVar("T")

COLUMNS = (
    "at_ms", "worker", "seq", "entry", "job", "tool", "args", "args_text", "verdict", "policy", "rule", "attempt",
    "version", "approver", "outcome", "code", "level", "taint", "files", "opened", "prev", "hash",
)  # fmt: skip


def register(commands: Any) -> None:
    """Adds the command."""
    parser: ArgumentParser = commands.add_parser("audit", help="check, search and export the workers' audit logs")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, act, help_text in (
        ("verify", _verify, "say what was removed, changed, reordered, inserted or cut off"),
        ("show", _show, "the records of a session, or with --level which of its calls brought it that level"),
        ("export", _export, "all records by time, as JSON lines or CSV"),
    ):
        each: ArgumentParser = verbs.add_parser(verb, help=help_text)
        each.add_argument("--dir", type=Path, help="where the logs are (default: audit in TOOLREEF_STATE)")
        add_queue(each)
        if verb == "verify":
            each.add_argument("--key-file", type=Path, help="the key of the checkpoints (default: the worker's)")
            each.add_argument("--offline", action="store_true", help="don't ask Redis for what it knows of the logs")
            each.add_argument("--all-workers", action="store_true", help="a log that only Redis knows is missing")
            each.add_argument("--strict", action="store_true", help="fail for what a crash may explain, too")
        else:
            add_session(each, required=verb == "show")
            each.add_argument("--call-id", help="of one call only")
            each.add_argument("--tool", help="of one tool only")
        if verb == "show":
            each.add_argument("--level", choices=[level.value for level in Level], help="which call brought it")
            each.add_argument("--offline", action="store_true", help="don't ask Redis how the taint rose")
        if verb == "export":
            each.add_argument("--format", choices=["jsonl", "csv"], default="jsonl")
        each.set_defaults(run=act)


def _directory(options: Namespace, settings: Settings) -> Path:
    directory: Path = options.dir or settings.state / "audit"
    if not directory.is_dir():
        raise UsageError(f"{directory} is no directory; where are the audit logs?")
    return directory


def _verify(options: Namespace) -> int:
    settings = settings_of(options)
    directory = _directory(options, settings)
    key_file = options.key_file or settings.audit_key_file
    here = set(files_of(directory))
    heads: dict[str, list[AuditMark]] = {}
    no_heads: list[Head] = []
    elsewhere = set()
    for head in no_heads if options.offline else _ask(settings, Auditor.heads):
        if head.worker in here or options.all_workers:
            heads.setdefault(head.worker, []).append(AuditMark(head.seq, head.hash))
        else:
            elsewhere.add(head.worker)
    problems = verify(directory, key=key_file.read_bytes() if key_file else None, heads=heads)
    for problem in problems:
        say(problem)
    certain = sum(problem.certain for problem in problems)
    summary = f"{len(here)} logs, {sum(map(len, heads.values()))} records vouched for by Redis: "
    summary += f"{certain} problems, {len(problems) - certain} that may be innocent"
    if not key_file:
        summary += "; no key, so signatures were not checked"
    if elsewhere:
        summary += f"; Redis knows logs that are not here: {', '.join(sorted(elsewhere)[:5])}"
    complain(summary)
    return FAILED if certain or (options.strict and problems) else OK


def _ask(settings: Settings, act: Callable[[Auditor], Coroutine[Any, Any, T]]) -> T:
    async def main(url: str) -> T:
        async with Auditor.connect(url, queue=settings.queue) as auditor:
            return await act(auditor)

    with redis_of(settings) as url:
        return asyncio.run(main(url))


def _show(options: Namespace) -> int:
    settings = settings_of(options)
    entries = list(_chosen(options, settings))
    if options.level is None:
        for entry in entries:
            say(entry.plain())
        return OK if entries else _nothing(f"no record of session {options.session}")
    return _lineage(options, settings, entries)


def _lineage(options: Namespace, settings: Settings, entries: list[Entry]) -> int:
    level = Level(options.level)
    brought = what_brought(entries, level)
    step = None if options.offline else _step(settings, options.session, level)
    if brought is None and step is None:
        return _nothing(f"nothing brought session {options.session} {level.value}")
    found: dict[str, Any] = {"session": options.session, "level": level.value}
    if step is not None:
        found["taint_rose"] = step
    if brought is not None:
        found["call"] = brought.finished.job.rpartition(":")[2]
        found["finished"] = brought.finished.plain()
        found["decided"] = brought.decided.plain() if brought.decided else None
    say(found)
    return OK


def _step(settings: Settings, session: str, level: Level) -> TaintStep | None:
    """The first rise to at least the level, as Redis tells it."""
    try:
        steps = _ask(settings, lambda auditor: auditor.taint_steps(session))
    except UNREACHABLE as error:
        complain(f"Redis can't be asked how the taint rose: {error}")
        return None
    return next((step for step in steps if read_level(step.level) >= level), None)


def _export(options: Namespace) -> int:
    entries = _chosen(options, settings_of(options))
    if options.format == "jsonl":
        for entry in entries:
            say(entry.plain())
        return OK
    table = csv.DictWriter(sys.stdout, COLUMNS, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    for entry in entries:
        plain = entry.plain()
        for name in ("files", "opened"):
            plain[name] = " ".join(str(each["path"] if name == "files" else each) for each in plain.get(name, ()))
        table.writerow({name: _safe(value) for name, value in plain.items()})
    return OK


def _safe(value: Any) -> Any:
    """Text that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _chosen(options: Namespace, settings: Settings) -> Iterator[Entry]:
    directory = _directory(options, settings)
    entries: Iterable[Entry] = read_entries(
        directory, lambda file, line: complain(f"{file}, line {line}, is no record; audit verify says more")
    )
    if options.session is not None:
        entries = of_session(entries, settings.queue, options.session, options.call_id)
    jobs: set[str] = set()
    for entry in entries:
        record = entry.record
        if options.tool is not None:
            if isinstance(record, Decided) and record.tool == options.tool:
                jobs.add(record.job)
            if not (isinstance(record, Decided | Finished) and record.job in jobs):
                continue
        yield entry


def _nothing(message: str) -> int:
    complain(message)
    return FAILED

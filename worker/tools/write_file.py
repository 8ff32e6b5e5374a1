"""write_file: a whole file, exactly the bytes of its content in UTF-8, atomically."""

from __future__ import annotations

import hashlib

from contracts.tools import WriteFileArgs, WriteFileOutput
from worker.failures import CallFailed
from worker.tools.context import ToolContext
from worker.tools.diffs import unified
from worker.tools.encodings import UTF_8, Encoding, NotText, detect
from worker.tools.lines import Tally
from worker.tools.replacing import Current, replace
from worker.tools.seen import last_seen
from worker.workspace import Conflict, printable, to_wire

_MAX_COMPARED_BYTES = 16 * 1024 * 1024
_SAMPLE_BYTES = 64 * 1024


async def run(args: WriteFileArgs, context: ToolContext) -> WriteFileOutput:
    """What was written, or with `dry_run` the diff of what would be.

    Raises:
        CallFailed: invalid_call, forbidden, wrong_kind, permission, conflict, no_space, too_large; nothing changed.
    """
    try:
        data = args.content.encode()
    except UnicodeEncodeError:
        raise CallFailed("invalid_call", "content holds half a surrogate pair, which no file can") from None
    before = _Before()

    def draft(current: Current) -> bytes | None:
        if args.create_only and current.fd is not None:
            raise Conflict(f"exists already, with {current.size} bytes; create_only makes new files only")
        current.require(args.if_match)
        if current.fd is not None:
            before.look(
                current, data, last_seen(context.workspace.root, context.session.name, current.path, current.stat)
            )
        before.path, before.exists = to_wire(current.path), current.fd is not None
        if args.dry_run:
            before.diff = _diff(current, data)
            return None
        return data

    done = await replace(args.path, context, draft, make_parents=not args.dry_run, may_create=True)
    return WriteFileOutput(
        path=to_wire(done.path) if done else before.path or printable(args.path),
        bytes=len(data),
        sha256=done.sha256 if done else hashlib.sha256(data).hexdigest(),
        created=not before.exists,
        diff=before.diff,
        notes=[*before.notes, *(done.notes if done else [])],
    )


class _Before:
    """What was there before, as far as the answer tells."""

    def __init__(self) -> None:
        self.path = ""
        self.exists = False
        self.diff: str | None = None
        self.notes: list[str] = []

    def look(self, current: Current, data: bytes, seen: str | None) -> None:
        """Notes what a writer of the whole file may not have meant to change."""
        self.notes = []
        if seen is not None and current.size <= _MAX_COMPARED_BYTES and current.sha256() != seen:
            self.notes.append("the file had changed since this session last read it; pass if_match to be stopped")
        head = current.read_head(_SAMPLE_BYTES)
        try:
            old = detect(head, whole=len(head) == current.size)
        except NotText:
            return
        if head and old.name != _encoding_of(data).name:
            self.notes.append(f"the file was {old.name}; it is {_encoding_of(data).name} now")
        endings, now = _endings(head, old), _endings(data[:_SAMPLE_BYTES], UTF_8)
        if endings and now and endings != now:
            self.notes.append(f"its line endings were {endings}; they are {now} now")


def _encoding_of(data: bytes) -> Encoding:
    try:
        return detect(data[:_SAMPLE_BYTES], whole=len(data) <= _SAMPLE_BYTES)
    except NotText:
        return UTF_8


def _endings(data: bytes, encoding: Encoding) -> str | None:
    tally = Tally(encoding)
    tally.add(data)
    return tally.endings


def _diff(current: Current, data: bytes) -> str:
    if current.size > _MAX_COMPARED_BYTES:
        return f"(the file has {current.size} bytes, too many to compare)\n"
    old = current.read() if current.fd is not None else None
    name = to_wire(current.path)
    try:
        encoding = detect(old or b"", whole=True)
    except NotText as problem:
        return f"--- {name}\n+++ {name}\n(it was: {problem.kind})\n"
    if encoding.unit > 1:
        return f"--- {name}\n+++ {name}\n(the encoding changes from {encoding.name} to utf-8)\n"
    return unified(name, old, data, UTF_8)

"""read_file: a text, whole up to a cap, or a range of its lines or bytes."""

from __future__ import annotations

import functools
import hashlib
import io
import os
from functools import partial

from aiofiles.threadpool import wrap

from contracts.tools import ReadFileArgs, ReadFileOutput
from worker.failures import CallFailed
from worker.tools.context import ToolContext
from worker.tools.encodings import Encoding, NotText, detect, detect_whole, named, refuse
from worker.tools.lines import Tally, end_of_line
from worker.tools.naming import naming
from worker.tools.offload import FILES, in_thread
from worker.tools.pages import MAX_PAGE_BYTES, SLACK_BYTES, Page, character_start, page_of_bytes, page_of_lines
from worker.tools.seen import saw
from worker.workspace import Opened, printable

MAX_HASHED_BYTES = 64 * 1024 * 1024
"""A larger file is neither hashed nor counted, so that its first page comes at once."""

_MAX_ON_LOOP_BYTES = 16 * 1024
_HEAD_BYTES = 64 * 1024
_PIECE_BYTES = 4 * 1024 * 1024


async def run(args: ReadFileArgs, context: ToolContext) -> ReadFileOutput:
    """The file's text, its encoding and its sha256. `next_offset`, `next_byte_offset` say where to go on, if at all.

    Raises:
        CallFailed: not_found, wrong_kind, permission, not_text, invalid_call.
    """
    by_bytes = args.byte_offset is not None or args.byte_limit is not None
    if by_bytes and (args.offset is not None or args.limit is not None):
        raise CallFailed("invalid_call", "give offset and limit (lines) or byte_offset and byte_limit, not both")
    opened, output = await _open(args, context)
    with opened:
        if output is None:
            try:
                output = await _of_large(opened, args)
            except NotText as problem:
                raise refuse(problem, printable(args.path), opened.stat.st_size) from None
    saw(context.workspace.root, context.session.name, opened, output.sha256)
    return output


async def _open(args: ReadFileArgs, context: ToolContext) -> tuple[Opened, ReadFileOutput | None]:
    """The file, and the answer if all of it fits one page. A thread is used wherever something might wait."""
    workspace = context.workspace
    with naming(args.path):
        spot = workspace.locate(args.path)
        cached = workspace.open_file_cached(spot)
    if cached and (data := _read_cached(cached)) is not None:
        context.opened.append(cached.wire_path)
        return cached, _of_whole(data, args)

    def read() -> tuple[Opened, ReadFileOutput | None]:
        with naming(args.path, workspace):
            opened = cached or workspace.open_file(spot)
            context.opened.append(opened.wire_path)
            data = _read_small(opened)
        return opened, None if data is None else _of_whole(data, args)

    return await in_thread(read)


class _Held(io.FileIO):
    """The file for aiofiles, holding on to the descriptor for as long as a thread reads."""

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened.fd, closefd=False)
        self._opened = opened


def _read_cached(opened: Opened) -> bytes | None:
    """The whole of a small file, if the kernel has it in memory: then no thread is needed, as nothing can wait."""
    size = opened.stat.st_size
    if size > _MAX_ON_LOOP_BYTES:
        return None
    buffer = bytearray(size + 1)
    try:
        count = os.preadv(opened.fd, [buffer], 0, os.RWF_NOWAIT)
    except OSError:
        return None  # not in memory, or a file system that can't tell
    return bytes(memoryview(buffer)[:count]) if count == size else None


def _read_small(opened: Opened) -> bytes | None:
    """The whole of a file that fits one page; None if it does not."""
    if opened.stat.st_size > MAX_PAGE_BYTES:
        return None
    pieces = []
    at = 0
    while at <= MAX_PAGE_BYTES and (piece := os.pread(opened.fd, MAX_PAGE_BYTES + 1 - at, at)):
        pieces.append(piece)
        at += len(piece)
    return b"".join(pieces) if at <= MAX_PAGE_BYTES else None


def _of_whole(data: bytes, args: ReadFileArgs) -> ReadFileOutput:
    try:
        return _page_of_small(data, args) if len(data) <= _MAX_ON_LOOP_BYTES else _page_of_whole(data, args)
    except NotText as problem:
        raise refuse(problem, printable(args.path), len(data)) from None


def _page_of_whole(data: bytes, args: ReadFileArgs) -> ReadFileOutput:
    encoding, text = (named(args.encoding, data), None) if args.encoding else detect_whole(data)
    tally = Tally(encoding)
    tally.add(data)
    size = len(data)
    if text is not None and args.offset is args.limit is args.byte_offset is args.byte_limit is None:
        page = Page(text)
    elif args.byte_offset is not None or args.byte_limit is not None:
        wanted = args.byte_offset or 0
        start = min(character_start(data[: wanted + 1], wanted, encoding), size)
        page = page_of_bytes(data[start:], start, args.byte_offset, args.byte_limit, encoding, size)
    else:
        start = _start_of_line(data, args.offset or 1, encoding)
        page = page_of_lines(data[start:], start, args.offset or 1, args.limit, encoding, size)
    return _output(page, encoding, args, size=size, tally=tally, sha256=hashlib.sha256(data).hexdigest())


# Agents read the same small files again and again.
_page_of_small = functools.lru_cache(maxsize=128)(_page_of_whole)


def _start_of_line(data: bytes, line: int, encoding: Encoding) -> int:
    if line == 1:
        return len(encoding.bom)
    end = end_of_line(data, line - 1, encoding)
    return end if end >= 0 else len(data)


class _Scan:
    """One pass over a large file: where a line begins and, if `hashing`, its hash."""

    def __init__(self, encoding: Encoding, line: int, *, hashing: bool) -> None:
        self._hashing = hashing
        self.tally = Tally(encoding)
        self.digest = hashlib.sha256()
        self.start = len(encoding.bom) if line == 1 else -1
        self._encoding = encoding
        self._line = line
        self._position = 0

    def add(self, piece: bytes) -> None:
        before = self.tally.newlines
        self.tally.add(piece)
        if self.start < 0 and self.tally.newlines >= self._line - 1:
            self.start = self._position + end_of_line(piece, self._line - 1 - before, self._encoding)
        self._position += len(piece)
        if self._hashing:
            self.digest.update(piece)


async def _of_large(opened: Opened, args: ReadFileArgs) -> ReadFileOutput:
    """A page of a file that does not fit one; memory stays within a few pieces, whatever the size."""
    size = opened.stat.st_size
    head = await in_thread(lambda: os.pread(opened.fd, _HEAD_BYTES, 0))
    encoding = named(args.encoding, head) if args.encoding else detect(head, whole=False)
    by_bytes = args.byte_offset is not None or args.byte_limit is not None
    counted = size <= MAX_HASHED_BYTES
    scan = _Scan(encoding, 1 if by_bytes else args.offset or 1, hashing=counted)
    if counted or scan.start < 0:
        file = wrap(_Held(opened), executor=FILES)
        while (counted or scan.start < 0) and (piece := await file.read(_PIECE_BYTES)):
            await in_thread(partial(scan.add, piece))
    if not by_bytes:
        start = scan.start if scan.start >= 0 else size
        window = await _read_at(opened, start)
        page = await in_thread(lambda: page_of_lines(window, start, args.offset or 1, args.limit, encoding, size))
    else:
        wanted = min(args.byte_offset or 0, size)
        early = max(wanted - SLACK_BYTES, 0)
        around = await _read_at(opened, early)
        start = character_start(around[: wanted + 1 - early], wanted, encoding)
        page = page_of_bytes(around[start - early :], start, args.byte_offset, args.byte_limit, encoding, size)
    if counted:
        return _output(page, encoding, args, size=size, tally=scan.tally, sha256=scan.digest.hexdigest())
    return _output(page, encoding, args, size=size, tally=None, sha256=None)


async def _read_at(opened: Opened, start: int) -> bytes:
    return await in_thread(lambda: os.pread(opened.fd, MAX_PAGE_BYTES + 2 * SLACK_BYTES, start))


def _output(
    page: Page, encoding: Encoding, args: ReadFileArgs, *, size: int, tally: Tally | None, sha256: str | None
) -> ReadFileOutput:
    notes = [page.note] if page.note else []
    if encoding.guessed:
        notes.append(f"the text is no UTF-8; {encoding.name} is a guess, and keeps every byte")
    if tally is None:
        notes.append(f"{size} bytes are too many to hash and to count the lines of")
    elif args.offset is not None and args.offset > max(tally.lines, 1):
        notes.append(f"line {args.offset} is past the end: there are {tally.lines} lines")
    if args.byte_offset is not None and args.byte_offset >= size > 0:
        notes.append(f"byte {args.byte_offset} is past the end: there are {size} bytes")
    return ReadFileOutput(
        text=page.text,
        encoding=encoding.name,
        sha256=sha256,
        total_lines=tally.lines if tally else None,
        next_offset=page.next_offset,
        next_byte_offset=page.next_byte_offset,
        bytes=size,
        line_endings=tally.endings if tally else None,
        truncated=page.truncated,
        notes=notes,
    )

"""edit_file: text that occurs exactly once gives way to other text, and every other byte stays."""

from __future__ import annotations

import hashlib

from contracts.tools import Edit, EditFileArgs, EditFileOutput
from worker.failures import CallFailed
from worker.tools.context import ToolContext
from worker.tools.diffs import unified
from worker.tools.encodings import UTF_8, Encoding, NotText, detect, named, refuse
from worker.tools.lines import count_aligned
from worker.tools.matching import MAX_COUNTED, find, replacement
from worker.tools.near_miss import hint_at
from worker.tools.replacing import Current, replace
from worker.tools.seen import last_seen
from worker.workspace import printable, to_wire

MAX_EDITED_BYTES = 64 * 1024 * 1024
_MAX_SHOWN_PLACES = 10


async def run(args: EditFileArgs, context: ToolContext) -> EditFileOutput:
    """Where it was changed and how. Several edits apply in order, all or none.

    Raises:
        CallFailed: no_match, not_unique, not_text, conflict, invalid_call, not_found, wrong_kind, permission,
            too_large, no_space, forbidden; nothing changed.
    """
    edits = _edits(args)
    result = _Result(args, edits)

    def draft(current: Current) -> bytes | None:
        current.require(args.if_match)
        seen = last_seen(context.workspace.root, context.session.name, current.path, current.stat)
        return result.make(current, seen)

    done = await replace(args.path, context, draft, make_parents=False, may_create=False)
    return EditFileOutput(
        path=result.path,
        bytes=len(result.new),
        sha256=done.sha256 if done else hashlib.sha256(result.new).hexdigest(),
        line=result.line,
        diff=result.diff,
        notes=[*result.notes, *(done.notes if done else [])],
    )


def _edits(args: EditFileArgs) -> list[Edit]:
    if args.edits is not None:
        if args.old_text is not None or args.new_text is not None:
            raise CallFailed("invalid_call", "give old_text and new_text, or edits, not both")
        edits = args.edits
    elif args.old_text is None or args.new_text is None:
        raise CallFailed("invalid_call", "old_text and new_text are both needed, or edits instead of them")
    else:
        edits = [Edit(old_text=args.old_text, new_text=args.new_text)]
    if not edits:
        raise CallFailed("invalid_call", "edits is empty")
    for number, edit in enumerate(edits, 1):
        if not edit.old_text:
            hint = "to write a whole file use write_file; to insert, replace a line by itself and the new one"
            raise CallFailed("invalid_call", f"{_which(number, edits)}old_text must not be empty", hint=hint)
    return edits


def _which(number: int, edits: list[Edit]) -> str:
    return f"edit {number} of {len(edits)}: " if len(edits) > 1 else ""


class _Result:
    """The new bytes, and what the answer tells of them. Made anew each time the file turns out to be another."""

    def __init__(self, args: EditFileArgs, edits: list[Edit]) -> None:
        self._args = args
        self._edits = edits
        self._shown = printable(args.path)
        self.path = ""
        self.new = b""
        self.line = 0
        self.diff = ""
        self.notes: list[str] = []

    def make(self, current: Current, seen: str | None) -> bytes | None:
        if current.size > MAX_EDITED_BYTES:
            raise CallFailed(
                "too_large",
                f"{self._shown}: {current.size} bytes, edit_file takes {MAX_EDITED_BYTES}",
                hint="use run_command with sed, or write a program for it",
            )
        old = current.read()
        self.path = to_wire(current.path)
        self.notes = []
        if seen is not None and hashlib.sha256(old).hexdigest() != seen:
            self.notes.append("the file had changed since this session last saw it")
        try:
            encoding = named(self._args.encoding, old) if self._args.encoding else detect(old, whole=True)
        except NotText as problem:
            raise refuse(problem, self._shown, len(old)) from None
        if encoding.guessed and not all(e.new_text.isascii() and e.old_text.isascii() for e in self._edits):
            self.notes.append(f"{encoding.name} is a guess at the file's encoding; other characters were written in it")
        new = old
        for number, edit in enumerate(self._edits, 1):
            new = self._apply(new, edit, number, encoding)
        self.new = new
        self.diff = unified(self.path, old, new, encoding)
        if new == old:
            self.notes.append("old_text and new_text come to the same; the file was not touched")
            return None
        return None if self._args.dry_run else new

    def _apply(self, data: bytes, edit: Edit, number: int, encoding: Encoding) -> bytes:
        found = find(data, edit.old_text, encoding)
        if len(found.spans) != 1:
            raise self._no_place(data, found.spans, edit, number, encoding)
        start, end = found.spans[0]
        if number == 1:
            self.line = _line_of(data, start, encoding)
        try:
            put = replacement(data, (start, end), edit.old_text, edit.new_text, found, encoding)
        except UnicodeEncodeError as error:
            char = error.object[error.start]
            message = f"{_which(number, self._edits)}{encoding.name} has no U+{ord(char):04X}, nothing was changed"
            raise CallFailed("invalid_call", f"{self._shown}: {message}") from None
        if "\n" in edit.new_text and put != edit.new_text.encode(encoding.codec):
            self.notes.append("the new lines end in CRLF, as the lines around them do")
        return data[:start] + put + data[end:]

    def _no_place(
        self, data: bytes, spans: list[tuple[int, int]], edit: Edit, number: int, encoding: Encoding
    ) -> CallFailed:
        which = _which(number, self._edits)
        if not spans:
            text = data.decode(encoding.codec, "replace")
            message = f"{self._shown}: {which}old_text does not occur, nothing was changed"
            return CallFailed("no_match", message, hint=hint_at(text, edit.old_text))
        lines = ", ".join(str(_line_of(data, start, encoding)) for start, _ in spans[:_MAX_SHOWN_PLACES])
        many = f"{len(spans)} or more" if len(spans) == MAX_COUNTED else str(len(spans))
        more = ", ..." if len(spans) > _MAX_SHOWN_PLACES else ""
        return CallFailed(
            "not_unique",
            f"{self._shown}: {which}old_text occurs {many} times, at lines {lines}{more}; nothing was changed",
            hint="take in more of the text around the place that is meant",
        )


def _line_of(data: bytes, at: int, encoding: Encoding) -> int:
    if encoding is UTF_8:
        return data.count(b"\n", 0, at) + 1
    return count_aligned(data[:at], encoding.newline, encoding.unit) + 1

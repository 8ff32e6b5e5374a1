"""The one way a tool changes a file: under its lock, as a whole, or not at all."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import io
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from aiofiles.threadpool import wrap

from worker.audit import FileChange
from worker.failures import CallFailed
from worker.tools.context import ToolContext
from worker.tools.naming import naming
from worker.tools.offload import FILES, Effects, in_thread
from worker.tools.room import require_room
from worker.tools.seen import saw
from worker.workspace import Conflict, InvalidPath, Opened, Place, Replacement, is_hidden, printable, to_wire

MAX_DATA_IN_ONE_HOP_BYTES = 1024 * 1024
MAX_HASHED_BEFORE_BYTES = 16 * 1024 * 1024
_PIECE_BYTES = 4 * 1024 * 1024
_ATTEMPTS = 100


@dataclass(slots=True)
class Current:
    """The file as it is, under its lock; `fd` is None where there is none."""

    fd: int | None
    stat: os.stat_result | None
    path: bytes

    @property
    def size(self) -> int:
        """In bytes; 0 where there is no file."""
        return self.stat.st_size if self.stat else 0

    def read(self) -> bytes:
        """All its bytes; empty where there is no file."""
        pieces = []
        at = 0
        while self.fd is not None and (piece := os.pread(self.fd, _PIECE_BYTES, at)):
            pieces.append(piece)
            at += len(piece)
        return b"".join(pieces)

    def read_head(self, count: int) -> bytes:
        """Its first bytes; none where there is no file."""
        return os.pread(self.fd, count, 0) if self.fd is not None else b""

    def sha256(self) -> str | None:
        """The hash of its bytes; None where there is no file."""
        if self.fd is None:
            return None
        digest = hashlib.sha256()
        at = 0
        while piece := os.pread(self.fd, _PIECE_BYTES, at):
            digest.update(piece)
            at += len(piece)
        return digest.hexdigest()

    def require(self, if_match: str | None) -> None:
        """Refuses a file that is not the one the agent read.

        Raises:
            Conflict: it is gone, or its content is another.
        """
        if if_match is None:
            return
        now = self.sha256()
        if now is None:
            raise Conflict("there is no such file any more, if_match expects one")
        if now != if_match:
            raise Conflict(f"the content changed: its sha256 is now {now} ({self.size} bytes), not {if_match}")


@dataclass(slots=True)
class Replaced:
    """What a change did: the canonical path, whether there was no file before, and what could not be kept."""

    path: bytes
    created: bool
    sha256: str
    stat: os.stat_result
    notes: list[str] = field(default_factory=list)


Draft = Callable[[Current], bytes | None]
"""Looks at the file under its lock, and says what it shall be; None leaves it. Runs in a thread, perhaps twice."""


class _Raced(Exception):
    """Somebody made the file between our look and our link."""


async def replace(
    path: str, context: ToolContext, draft: Draft, *, make_parents: bool, may_create: bool
) -> Replaced | None:
    """Replaces the file at a wire path by what `draft` says; None if draft says nothing.

    Raises:
        CallFailed: not_found, wrong_kind, permission, conflict, no_space, forbidden, invalid_call; nothing changed.
    """
    effects = Effects()
    for _ in range(_ATTEMPTS):
        change = _Change(context, path, draft, effects, make_parents=make_parents, may_create=may_create)
        try:
            if not await effects.run(change.begin):
                await change.write_large()
                await effects.run(change.finish)
        except _Raced:
            continue
        except BaseException:
            if effects.at_rest:
                await in_thread(change.close)
            raise
        finally:
            # Also when it fails: what it says of a file is as secret as the file. Of none it says nothing.
            if change.path and (change.existed or change.replaced):
                context.opened.append(to_wire(change.path))
        if change.replaced:
            seen = Opened(-1, change.replaced.stat, change.path)
            saw(context.workspace.root, context.session.name, seen, change.replaced.sha256)
            context.changed.append(
                FileChange(path=to_wire(change.path), before=change.before, after=change.replaced.sha256)
            )
        return change.replaced
    raise CallFailed("conflict", f"{printable(path)}: it keeps appearing and disappearing", retryable=True)


class _Change:
    """One attempt. `begin` does it all for data of ordinary size; larger data passes `write_large` and `finish`.

    Whoever works on the descriptors closes them. Where a cancelled call's thread is still at it, the last to hold the
    replacement does.
    """

    def __init__(
        self,
        context: ToolContext,
        path: str,
        draft: Draft,
        effects: Effects,
        *,
        make_parents: bool,
        may_create: bool,
    ) -> None:
        self._workspace = context.workspace
        self._allowed_bytes = context.limits.workspace_bytes
        self._wire_path = path
        self._draft = draft
        self._effects = effects
        self._make_parents = make_parents
        self._may_create = may_create
        self._replacement: Replacement | None = None
        self._data = b""
        self._sha256: str | None = None
        self._created = False
        self.path = b""
        self.before = ""
        self.existed = False
        self.replaced: Replaced | None = None

    def begin(self) -> bool:
        """Whether the change is complete; if not, `write_large` and `finish` are to follow."""
        with naming(self._wire_path, self._workspace, writing=True):
            place = self._place()
            if place is None:
                return True
            self._replacement = replacement = Replacement(self._workspace, place, self._effects.stop)
            try:
                self.path = self._workspace.path_of(place)
                if is_hidden(self.path):
                    raise InvalidPath("the name is reserved for the worker's own files")
                replacement.begin()
                self.existed = replacement.fd is not None
                self._created = not self.existed
                if self._created and not self._may_create:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
                current = Current(replacement.fd, replacement.stat, self.path)
                data = self._draft(current)
                if data is not None:
                    require_room(self._workspace.usage, self._allowed_bytes, self._wire_path, current.stat, len(data))
                    self.before = "?" if current.size > MAX_HASHED_BEFORE_BYTES else current.sha256() or ""
            except BaseException:
                replacement.close()
                raise
        if data is None:
            replacement.close()
            return True
        self._data = data
        if len(data) > MAX_DATA_IN_ONE_HOP_BYTES:
            return False
        self.finish()
        return True

    async def write_large(self) -> None:
        """Hands the data to aiofiles piece by piece, so that a cancelled call ends between two of them."""
        view = memoryview(self._data)
        replacement = self._opened()
        hashing = asyncio.ensure_future(in_thread(partial(_sha256, self._data)))
        with naming(self._wire_path):
            file = wrap(await self._effects.run(partial(_Held, replacement)), executor=FILES)
            while view:
                view = view[await self._effects.see_through(file.write(view[:_PIECE_BYTES])) :]
            self._sha256 = await hashing

    def finish(self) -> None:
        """Puts the new file in place."""
        replacement = self._opened()
        try:
            with naming(self._wire_path, writing=True):
                if len(self._data) <= MAX_DATA_IN_ONE_HOP_BYTES:
                    replacement.write(self._data)
                try:
                    replacement.commit()
                except FileExistsError:
                    raise _Raced from None
            found = replacement.committed_stat
        finally:
            replacement.close()
        digest = self._sha256 or _sha256(self._data)
        self.replaced = Replaced(self.path, self._created, digest, found, replacement.notes)

    def close(self) -> None:
        """Gives up what an attempt that failed or was cancelled still holds."""
        if self._replacement is not None:
            self._replacement.close()

    def _opened(self) -> Replacement:
        if self._replacement is None:
            raise RuntimeError("begin comes first")
        return self._replacement

    def _place(self) -> Place | None:
        """Where to write; None if a dry run found not even the directory, and was told that there is no file."""
        spot = self._workspace.locate(self._wire_path)
        self.path = spot.relative
        try:
            return self._workspace.place(spot, make_parents=self._make_parents)
        except FileNotFoundError:
            if not self._may_create:
                raise
        if self._draft(Current(None, None, spot.relative)) is not None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return None


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class _Held(io.FileIO):
    """The new file for aiofiles, holding on to its descriptor for as long as a thread writes."""

    def __init__(self, replacement: Replacement) -> None:
        super().__init__(replacement.open_temp(), "wb", closefd=False)
        self._replacement = replacement

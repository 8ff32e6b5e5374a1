"""What rules look at: one call, with what can be told of its paths and its command before anything runs."""

from __future__ import annotations

import functools
import os
import posixpath
from collections.abc import Iterable, Iterator
from functools import cached_property

from contracts.levels import Level, highest
from contracts.tools import TOOLS, RunCommandArgs
from worker.decisions import Judged
from worker.shell import marks
from worker.shell.limits import MAX_COMMAND_CHARS, TooComplex
from worker.shell.paths import join
from worker.shell.second import unseen
from worker.shell.state import Call
from worker.shell.walk import Walker, walk
from worker.workspace import InvalidPath, from_wire, locate, to_wire

MAX_RESOLVED = 256
"""So many paths of a command are followed through links; more are judged as they are written."""
MAX_SECOND_CHARS = 16 * 1024
MAX_SECOND = 16


@functools.lru_cache(maxsize=32)
def _walked(command: str, cwd: str, home: str) -> Walker | None:
    """Kept, since a call is looked at before it runs and again when it has ended. Nobody changes a finished walk."""
    try:
        return walk(command, cwd=cwd, home=home)
    except (TooComplex, RecursionError):
        return None


class Subject:
    """One call as rules see it. Everything is worked out when a rule first asks for it.

    `opened` are the canonical paths that the tool really opened, and `answer_level` is the answer's level, once there
    is one.
    """

    def __init__(self, judged: Judged, opened: Iterable[str] = (), answer_level: Level = Level.PUBLIC) -> None:
        call, session = judged.call, judged.session
        self.tool, self.session, self.tenant = call.tool, session.name, judged.queue
        self.effect = TOOLS[call.tool].effect.value
        self.level = highest((session.taint, session.workspace_level, answer_level))
        self._args, self._roots, self._opened = call.args, judged.workspace_roots, tuple(opened)

    @property
    def command(self) -> str | None:
        """The command line, if the call has one."""
        return self._args.command if isinstance(self._args, RunCommandArgs) else None

    @cached_property
    def paths(self) -> frozenset[str]:
        """Every path of the call, as it is written and as links lead; relative to the workspace if it lies inside."""
        wanted = list(self._command_paths()) if self.command is not None else [getattr(self._args, "path", None)]
        found = set(self._opened)
        for number, path in enumerate(path for path in wanted if path is not None):
            found.update(self._spellings(path, follow=number < MAX_RESOLVED))
        return frozenset(found)

    @cached_property
    def walker(self) -> Walker | None:
        """The command line, walked; None if it can't be followed."""
        if self.command is None or len(self.command) > MAX_COMMAND_CHARS:
            return None
        return self._walked(self.command)

    @cached_property
    def calls(self) -> tuple[Call, ...] | None:
        """Every command that the line may run, also read another way; None if it can't be followed."""
        walker = self.walker
        if walker is None:
            return None
        calls = list(walker.calls)
        if len(self.command or "") <= MAX_SECOND_CHARS:
            for other in unseen(self.command or "", walker.starts)[:MAX_SECOND]:
                again = self._walked(other)
                calls += again.calls if again is not None else ()
        return tuple(calls)

    def _walked(self, command: str) -> Walker | None:
        root = self._roots[0]
        return _walked(command, join(root, getattr(self._args, "cwd", None) or ".") or root, root)

    def _command_paths(self) -> Iterator[str]:
        yield getattr(self._args, "cwd", None) or "."
        for call in self.calls or ():
            words = [*call.argv[1:], *(target for _, target in call.redirects)]
            for word in words:
                for text in (word, word.partition("=")[2]) if "=" in word else (word,):
                    path = join(call.cwd, marks.literal_globs(text)) if text else None
                    if path is not None and not marks.has_value_mark(path):
                        yield path

    def _spellings(self, path: str, *, follow: bool) -> Iterator[str]:
        try:
            spot = locate(path, self._roots)
            raw = from_wire(path)
        except InvalidPath:
            return
        root = os.fsencode(self._roots[0])
        if spot is not None:
            yield to_wire(spot.relative)
            whole = posixpath.join(root, spot.relative)
        else:
            whole = posixpath.normpath(raw if raw.startswith(b"/") else posixpath.join(root, raw))
            yield to_wire(whole)
        if follow and b"\0" not in whole:
            real = os.path.realpath(whole)
            yield to_wire(os.path.relpath(real, root) if real == root or real.startswith(root + b"/") else real)

"""Hooks of other packages, asked in helper processes that can be killed: a hook may hang, crash or flood.

Each process answers one event at a time. What fails or takes too long is a `HookFailed`, and its process is replaced.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

import msgspec
from msgspec import Struct

from contracts.codec import encode
from contracts.hooks import POST_TOOL_RESPONSE, PRE_TOOL_CALL, AnswerEvent, Ask, CallEvent, Deny, Rewrite, Withhold
from contracts.levels import Level, highest
from contracts.replies import Error
from contracts.tools import TOOLS, Output
from worker.decisions import Decision, Judged, ask, deny

log = logging.getLogger("toolreef")

POLICY = "hook"
START_TIMEOUT_S = 30.0
RETRY_START_S = 1.0
"""After a start that failed, so long no other is tried: calls are refused at once meanwhile."""
MAX_WAITING = 1000
MAX_FRAME_BYTES = 16 * 1024 * 1024
MAX_PRINTED_BYTES = 16 * 1024
"""So much of what a process prints goes to the log; the rest is read and dropped."""


class HookFailed(Exception):
    """A hook did not answer. `hook` is its name, as far as known; the message is for the log only."""

    def __init__(self, hook: str, message: str) -> None:
        super().__init__(message)
        self.hook = hook


class Said(Struct, frozen=True):
    """What one hook said."""

    name: str
    answer: Deny | Ask | Withhold | Rewrite


class _Frame(Struct, frozen=True):
    at: str | None = None
    error: str | None = None
    text: str = ""
    ready: dict[str, list[str]] | None = None
    said: list[Said] | None = None


class Held(Struct, frozen=True):
    """An answer after the hooks: what may leave, or who withheld it and why."""

    output: Output | None
    level: Level
    rewritten: bool = False
    withheld_by: str = ""
    reason: str = ""


def installed() -> dict[str, list[str]]:
    """The names of all hooks that installed packages offer, by group."""
    return {g: sorted(point.name for point in entry_points(group=g)) for g in (PRE_TOOL_CALL, POST_TOOL_RESPONSE)}


class PluginHooks:
    """All hooks of other packages, behind `processes` helper processes. `names` is what `installed` gave."""

    def __init__(
        self,
        names: Mapping[str, Sequence[str]],
        *,
        timeout_s: float,
        processes: int,
        memory_bytes: int,
        environment: dict[str, str],
    ) -> None:
        self.names = {group: list(found) for group, found in names.items()}
        self._timeout_s = timeout_s
        self._hosts = [_Host(self.names, memory_bytes, environment) for _ in range(processes)]
        self._idle: asyncio.LifoQueue[_Host] = asyncio.LifoQueue()
        self._waiting = 0
        for host in self._hosts:
            self._idle.put_nowait(host)

    @property
    def judges_calls(self) -> bool:
        """Whether there is a hook before calls."""
        return bool(self.names.get(PRE_TOOL_CALL))

    @property
    def judges_answers(self) -> bool:
        """Whether there is a hook before answers."""
        return bool(self.names.get(POST_TOOL_RESPONSE))

    async def start(self) -> None:
        """Starts every process, so that a hook that can't be loaded is found out before any call.

        Raises:
            HookFailed: a hook can't be loaded.
        """
        await asyncio.gather(*(host.start() for host in self._hosts))

    async def close(self) -> None:
        """Kills every process."""
        await asyncio.gather(*(host.kill() for host in self._hosts))

    async def before(self, judged: Judged) -> list[Decision]:
        """What the hooks say of a call. A failure is a denial."""
        try:
            said = await self._ask(CallEvent(**_facts(judged)))
        except HookFailed as failure:
            log.error("hook %s before %s failed: %s", failure.hook, judged.call.tool, failure)
            return [deny(POLICY, failure.hook, "a hook failed, so the call is refused")]
        return [
            (deny if isinstance(each.answer, Deny) else ask)(POLICY, each.name, each.answer.reason)
            for each in said
            if isinstance(each.answer, Deny | Ask)
        ]

    async def after(self, judged: Judged, output: Output | None, error: Error | None, level: Level) -> Held:
        """What the hooks make of an answer.

        Raises:
            HookFailed: one of them failed, or gave back an output that its tool can't have; nothing may leave.
        """
        event = AnswerEvent(
            **_facts(judged), output=msgspec.to_builtins(output), error=msgspec.to_builtins(error), level=level
        )
        held = Held(output, level)
        for each in await self._ask(event):
            if isinstance(each.answer, Withhold):
                return Held(None, Level.PUBLIC, withheld_by=each.name, reason=each.answer.reason)
            if isinstance(each.answer, Rewrite):
                held = _rewritten(judged.call.tool, held, each.name, each.answer)
        return held

    async def _ask(self, event: CallEvent | AnswerEvent) -> list[Said]:
        if self._waiting >= MAX_WAITING:
            raise HookFailed("queue", f"{self._waiting} events wait for the hooks already")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._timeout_s):
                host = await self._idle.get()
        except TimeoutError:
            raise HookFailed("queue", f"no hook process was free within {self._timeout_s:g} s") from None
        finally:
            self._waiting -= 1
        try:
            return await host.ask(encode(event), self._timeout_s)
        finally:
            self._idle.put_nowait(host)


def _facts(judged: Judged) -> dict[str, Any]:
    call, session = judged.call, judged.session
    return {
        "queue": judged.queue,
        "session": session.name,
        "call": call.call,
        "tool": call.tool,
        "args": msgspec.to_builtins(call.args),
        "effect": TOOLS[call.tool].effect.value,
        "mode": session.mode,
        "taint": session.taint,
        "workspace": session.workspace,
        "workspace_level": session.workspace_level,
    }


def _rewritten(tool: str, held: Held, name: str, answer: Rewrite) -> Held:
    level = highest((held.level, answer.level))
    if answer.output is None:
        return Held(held.output, level, held.rewritten)
    if held.output is None:
        raise HookFailed(name, "gave an output to an answer that has none")
    try:
        return Held(msgspec.convert(answer.output, TOOLS[tool].output), level, True)
    except msgspec.ValidationError as error:
        raise HookFailed(name, f"gave an output that {tool} can't have: {error}") from None


class _Host:
    """One helper process, started when it is needed and killed when anything is wrong with it."""

    def __init__(self, names: Mapping[str, Sequence[str]], memory_bytes: int, environment: dict[str, str]) -> None:
        self._names, self._memory_bytes, self._environment = dict(names), memory_bytes, environment
        self._process: asyncio.subprocess.Process | None = None
        self._printed: asyncio.Task[None] | None = None
        self._failed = float("-inf")
        self._at = "hooks"

    async def ask(self, event: bytes, timeout_s: float) -> list[Said]:
        """What the process answers. Afterwards it is either ready for the next event or dead."""
        try:
            process = self._process or await self.start()
            async with asyncio.timeout(timeout_s):
                assert process.stdin is not None
                process.stdin.write(len(event).to_bytes(4) + event)
                await process.stdin.drain()
                frame = await self._last_frame(process)
            if frame.said is None:
                raise HookFailed(self._at, frame.text or "answered nothing")
            return frame.said
        except TimeoutError:
            await self.kill()
            raise HookFailed(self._at, f"took longer than {timeout_s:g} s") from None
        except (OSError, EOFError) as error:
            await self.kill()
            raise HookFailed(self._at, f"its process ended: {error}") from None
        except BaseException:
            await self.kill()
            raise

    async def start(self) -> asyncio.subprocess.Process:
        """Starts the process and waits until it has loaded every hook."""
        if time.monotonic() - self._failed < RETRY_START_S:
            raise HookFailed(self._at, "its process could not be started a moment ago")
        self._at = "hooks"
        command = (sys.executable, "-m", "worker.hooks.host", str(self._memory_bytes))
        pipe = asyncio.subprocess.PIPE
        self._process = process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, env=self._environment, start_new_session=True
        )
        self._printed = asyncio.create_task(_drain(process))
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                frame = await self._last_frame(process)
            if frame.ready != self._names:
                raise HookFailed(self._at, frame.text or f"loaded {frame.ready}, not {self._names}")
        except BaseException as error:
            self._failed = time.monotonic()
            await self.kill()
            if isinstance(error, TimeoutError | OSError | EOFError):
                raise HookFailed(self._at, f"could not be loaded: {type(error).__name__}") from None
            raise
        return process

    async def kill(self) -> None:
        """Kills the process and whatever it has started in its process group."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        if self._printed is not None:
            self._printed.cancel()
        await asyncio.shield(process.wait())

    async def _last_frame(self, process: asyncio.subprocess.Process) -> _Frame:
        """Reads past the frames that say which hook is being asked."""
        assert process.stdout is not None
        while True:
            length = int.from_bytes(await process.stdout.readexactly(4))
            if length > MAX_FRAME_BYTES:
                raise HookFailed(self._at, f"answered {length} bytes")
            try:
                frame = msgspec.json.decode(await process.stdout.readexactly(length), type=_Frame)
            except msgspec.MsgspecError as error:
                raise HookFailed(self._at, f"answered what nobody can read: {error}") from None
            if frame.at is None:
                self._at = frame.error or self._at
                return frame
            self._at = frame.at


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Reads all that the hooks print, so that they never block on it, and logs the beginning."""
    assert process.stderr is not None
    left = MAX_PRINTED_BYTES
    while data := await process.stderr.read(65536):
        if left > 0:
            log.info("hooks print: %s", data[:left].decode(errors="replace").rstrip())
            left -= len(data)

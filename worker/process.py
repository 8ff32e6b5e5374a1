"""One command: its limits, its output, the end of its tree."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from worker.disk_usage import Usage
from worker.disk_watch import GLANCE_EACH_S, DiskWatch
from worker.drain import CreateSpill, Drain, StreamEnd, readable
from worker.endings import limits_in, signal_named
from worker.relay import Relay, Send, Stream
from worker.sandbox import Sandbox
from worker.slots import Launch, LauncherFailed, Slot

log = logging.getLogger("toolreef")

_KILL_PATIENCE_S = 5.0
_UNKILLABLE_S = 15.0
_EOF_PATIENCE_S = 1.0
_SETUP_FAILED = 125


class Limits(Struct, frozen=True, kw_only=True):
    """What one command may use. A limit that is hit ends the command and is named in the reply."""

    wall_s: float = 120.0
    cpu_s: float = 600.0
    """Of the whole tree together."""
    memory_bytes: int = 4 * 1024**3
    """Of the whole tree together; any one process may map twice that."""
    processes: int = 512
    """Processes and threads of the whole tree."""
    file_bytes: int = 2 * 1024**3
    """Size of any one file."""
    open_files: int = 4096
    """Descriptors of any one process."""
    output_bytes: int = 200 * 1024
    """Kept in the reply of each stream, half of its head and half of its tail."""
    spill_bytes: int = 16 * 1024**2
    """Kept of each stream in a file of the workspace when it does not fit the reply."""
    output_total_bytes: int = 1024**3
    """Of both streams together, kept or not; more ends the command."""
    progress_bytes: int = 1024**2
    """Sent as progress entries; the rest is counted as dropped."""
    tmp_bytes: int = 512 * 1024**2
    """Size of the command's private /tmp where it has one."""
    disk_free_bytes: int = 128 * 1024**2
    """What must stay free on the workspace's file system."""
    disk_free_files: int = 4096
    """Files that it must still be possible to make there, where the file system has a fixed number of many."""
    workspace_bytes: int = 16 * 1024**3
    """What a workspace may hold, by what is allocated on disk; 0 for any amount."""
    drain_s: float = 0.2
    """How long what outlives the shell may go on writing."""


@dataclass(slots=True, kw_only=True)
class Command:
    """A command to run. See `worker.slots.Launch` for the paths and descriptors."""

    script: str
    workspace: str
    workspace_fd: int
    cwd: str
    cwd_fd: int
    env: dict[str, str]
    usage: Usage | None = None
    """Of the workspace; without it `Limits.workspace_bytes` is not kept."""
    writable: bool = True
    timeout_s: float | None = None
    """Shortens `Limits.wall_s`."""


@dataclass(slots=True)
class Ran:
    """How a command ended. `killed` are the names of processes that outlived the shell and were ended."""

    exit_code: int = 128 + signal.SIGKILL
    signal: str | None = None
    timed_out: bool = False
    cancelled: bool = False
    limits_hit: list[str] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    held_bytes: int = 0
    """What the workspace held when that was over its limit."""
    duration_s: float = 0.0
    peak_bytes: int = 0
    """The most memory that was in use; where a cgroup counts it, caches of files and the command's /tmp with it."""
    stdout: StreamEnd = field(default_factory=StreamEnd)
    stderr: StreamEnd = field(default_factory=StreamEnd)


class Run:
    """One command under way. `finish` is awaited once; `ran` is complete when it returns or raises."""

    def __init__(
        self,
        command: Command,
        limits: Limits,
        sandbox: Sandbox,
        *,
        spill: CreateSpill | None = None,
        progress: Send | None = None,
    ) -> None:
        self.ran = Ran()
        self._command = command
        self._limits = limits
        self._sandbox = sandbox
        self._relay = Relay(progress, limits.progress_bytes) if progress else None
        streams: tuple[Stream, Stream] = ("stdout", "stderr")
        self._drains = [
            Drain(stream, self._took, spill, keep_bytes=limits.output_bytes, spill_bytes=limits.spill_bytes)
            for stream in streams
        ]
        self._disk = DiskWatch(
            command.workspace_fd,
            self._kill,
            free_bytes=limits.disk_free_bytes,
            free_files=limits.disk_free_files,
            usage=command.usage,
            workspace_bytes=limits.workspace_bytes,
        )
        self._slot: Slot | None = None
        self._output_bytes = 0
        self._killed = False
        self._patience: asyncio.Timeout | None = None

    async def finish(self) -> Ran:
        """Run it to its end. When cancelled, the whole tree is ended before CancelledError is raised.

        Raises:
            LauncherFailed: it could not be started; the message names the call.
        """
        task = asyncio.create_task(self._carry_out())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self.ran.cancelled = True
            self._kill()
            await asyncio.wait({task}, timeout=_KILL_PATIENCE_S)
            if task.done() and not task.cancelled():
                task.exception()
            raise

    def _kill(self, limit: str | None = None) -> None:
        if limit and limit not in self.ran.limits_hit:
            self.ran.limits_hit.append(limit)
        if self._slot and not self._killed:
            self._killed = True
            self._slot.kill()
            if self._patience:
                self._patience.reschedule(asyncio.get_running_loop().time() + _UNKILLABLE_S)

    def _took(self, stream: Stream, chunk: bytes) -> None:
        self._output_bytes += len(chunk)
        if self._output_bytes > self._limits.output_total_bytes:
            self._kill("output")
        if self._relay:
            self._relay.add(stream, chunk)

    async def _carry_out(self) -> Ran:
        loop = asyncio.get_running_loop()
        await self._disk.begin()
        started = time.monotonic()
        if self.ran.cancelled:
            # Before anything ran: there is nothing to end.
            return self.ran
        slot = self._slot = self._sandbox.take()
        tasks: list[asyncio.Task[None]] = []
        reusable = False
        timer: asyncio.TimerHandle | None = None
        watch: asyncio.TimerHandle | None = None
        try:
            self._start(slot)
            timer = loop.call_later(self._timeout_s(), self._time_out)
            reading = [asyncio.create_task(drain.read()) for drain in self._drains]
            relaying = [asyncio.create_task(self._relay.run())] if self._relay else []
            tasks += [*reading, *relaying]
            watch = loop.call_later(GLANCE_EACH_S, lambda: tasks.append(asyncio.create_task(self._disk.run())))
            try:
                async with asyncio.timeout(None) as self._patience:
                    report = await self._follow(slot, reading)
            except TimeoutError:
                raise LauncherFailed("the command can't be ended: the kernel does not let go", started=True) from None
            finally:
                self._patience = None
            self.ran.duration_s = time.monotonic() - started
            # Nobody is left to write; what the pipes still hold is read at once.
            await asyncio.wait(reading, timeout=_EOF_PATIENCE_S)
            if self._relay:
                self._relay.close()
                await asyncio.wait(relaying, timeout=_KILL_PATIENCE_S)
            self._conclude(slot, report)
            reusable = True
            self.ran.stdout, self.ran.stderr = [await drain.conclude() for drain in self._drains]
            return self.ran
        finally:
            for due in (timer, watch):
                if due:
                    due.cancel()
            await _end(tasks)
            for drain in self._drains:
                drain.close()
            self._slot = None
            if reusable:
                self._sandbox.slots.give_back(slot)
            else:
                slot.close()

    def _start(self, slot: Slot) -> None:
        command, limits = self._command, self._limits
        ends: list[int] = []
        try:
            for drain in self._drains:
                ends.append(drain.open())  # noqa: PERF401 - what is open must be closed if the next one fails
            slot.start(
                Launch(
                    script=command.script.encode("utf-8", "surrogateescape"),
                    workspace=command.workspace,
                    workspace_fd=command.workspace_fd,
                    cwd=command.cwd,
                    cwd_fd=command.cwd_fd,
                    env=command.env,
                    limits={
                        "cpu_s": limits.cpu_s,
                        "memory_bytes": limits.memory_bytes,
                        "processes": limits.processes,
                        "file_bytes": limits.file_bytes,
                        "open_files": limits.open_files,
                        "tmp_bytes": limits.tmp_bytes,
                    },
                    writable=command.writable,
                    read_only=self._sandbox.read_only,
                    drain_s=limits.drain_s,
                ),
                *ends,
            )
        finally:
            for end in ends:
                os.close(end)

    def _timeout_s(self) -> float:
        wanted = self._command.timeout_s
        return self._limits.wall_s if wanted is None else max(0.0, min(wanted, self._limits.wall_s))

    def _time_out(self) -> None:
        self.ran.timed_out = True
        self._kill("wall")

    async def _follow(self, slot: Slot, reading: list[asyncio.Task[None]]) -> dict[str, Any]:
        while True:
            await readable(slot.control.fileno())
            report = slot.hear()
            if report is None:
                continue
            if report["event"] == "ended":
                return report
            # The shell has ended and left something behind: once nobody holds the pipes, nothing is waited for.
            for task in reading:
                task.add_done_callback(lambda _: slot.kill() if all(each.done() for each in reading) else None)

    def _conclude(self, slot: Slot, report: dict[str, Any]) -> None:
        ran = self.ran
        code = report["exit_code"]
        if code == _SETUP_FAILED and (failure := slot.setup_failure()):
            raise LauncherFailed(failure)
        if code == 1 and self._sandbox.tier.startswith("bwrap") and '"exit-code"' not in report["wall"]:
            raise LauncherFailed(self._drains[1].capture.text(None)[0].strip() or "bwrap failed")
        ran.killed = report["killed"] if code is not None else []
        if report["limit"] and report["limit"] not in ran.limits_hit:
            ran.limits_hit.append(report["limit"])
        if code is not None:
            ran.exit_code = code
        if code is not None and ran.timed_out:
            # It had ended by itself when the time-out came.
            ran.timed_out = False
            ran.limits_hit.remove("wall")
        ran.signal = signal_named(ran.exit_code)
        ran.held_bytes = self._disk.held_bytes
        ran.peak_bytes = report["peak_bytes"]
        if report["without_cgroup"]:
            log.warning("a command ran without a cgroup of its own: %s", report["without_cgroup"])
        if code is not None:
            said = limits_in(ran.signal, ran.exit_code, self._drains[1].capture)
            ran.limits_hit += [limit for limit in said if limit not in ran.limits_hit]


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()):
            log.warning("some of a command's output was lost", exc_info=error)

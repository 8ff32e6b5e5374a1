"""The launcher's process of one slot: runs one job after the other, watches its limits, ends its tree.

Imports nothing but the standard library and its neighbours, which do the same.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import select
import signal
import socket
import time
from contextlib import suppress
from typing import Any, NoReturn

from worker import bounds, jail, proctree
from worker.forking import fork
from worker.jail import Started
from worker.limit_watch import LimitWatch
from worker.spawning import Spawner, wait_until_alone

_PR_SET_CHILD_SUBREAPER = 36
_SETTLE_S = 0.02
_MAX_MESSAGE = 64 * 1024
_MAX_NAMES = 20
_NAMESPACE_ENDS_S = 5.0
_INIT_OF_WALL = re.compile(rb'"child-pid":\s*(\d+)')

_libc = ctypes.CDLL(None, use_errno=True)


class _Gone(Exception):
    """The worker has closed its end, or the child died before it had a job."""


def run(jobs: socket.socket, control: socket.socket, prepared: jail.Prepared) -> NoReturn:
    """One job after the other, until the worker closes the control socket."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    bounds.come_first(0)
    os.umask(0o022)
    if prepared.keeps_signals_in:
        jail.keep_signals_in()
    if prepared.tier == "landlock" and not prepared.delegated:
        # What it spawns inherits this. Who is to be forked into a cgroup does it himself: clone3 is behind the filter.
        jail.shed_privileges(prepared)
    spawner = Spawner(prepared)
    number = 0
    while True:
        number += 1
        started = fork(jobs, control, prepared) if prepared.delegated else _spawn(jobs, control, spawner, number)
        if started is None:
            continue
        job = Job(jobs, control, prepared, number, started)
        try:
            job.follow()
        except (_Gone, OSError):
            job.end_all()
            job.close()
            os._exit(0)
        job.close()


def _spawn(jobs: socket.socket, control: socket.socket, spawner: Spawner, number: int) -> Started | None:
    # The next job's process; None when it can't be made, which has been said then.
    header, descriptors = jail.receive(jobs)
    if not header:
        os._exit(0)
    try:
        return spawner.spawn(header, descriptors)
    except Exception as error:  # noqa: BLE001 - whatever it was, the worker waits for an answer
        jail.explain(jobs, error)
        _report_ended(control, number, jail.SETUP_FAILED)
        return None


class Job:
    """One job, from waiting for it to the end of its tree."""

    def __init__(
        self, jobs: socket.socket, control: socket.socket, prepared: jail.Prepared, number: int, started: Started
    ) -> None:
        self.jobs = jobs
        self.control = control
        self.prepared = prepared
        self.number = number
        self.started = started
        self.pid = started.pid
        self.pidfd = os.pidfd_open(started.pid)
        self.cgroup = started.cgroup
        self.block: int | None = started.block
        self.wall = b""
        self.init: int | None = None
        self.init_pid = 0
        self.watch: LimitWatch | None = None
        self.kill = False
        self.refused: OSError | None = None
        self.exit_code: int | None = None
        os.set_blocking(started.status, False)

    def close(self) -> None:
        """Give the descriptors back."""
        os.close(self.pidfd)
        os.close(self.started.status)
        for descriptor in (self.block, self.init):
            if descriptor is not None:
                os.close(descriptor)
        if self.cgroup is not None:
            self.cgroup.close()

    def follow(self) -> None:
        """Until nothing of the job is left, and reported.

        Raises:
            _Gone: there is nobody to report to.
        """
        if self.started.opening:
            while self.watch is None:
                self._hear()
            # Counted over all of a uid, so what runs already is added: the whole host's tasks are the one cheap bound.
            self._let_go(self.pid, proctree.tasks_of_host())
        self._wait()
        killed: list[str] = []
        if self.exit_code is None:
            self.end_all()
        elif not self._settled():
            self._drain()
            killed = self._left()
            self.end_all()
        self._read_status()
        if self.refused is not None:
            jail.explain(self.jobs, self.refused)
            self.exit_code = jail.SETUP_FAILED
        watch = self._watching()
        limit, peak_bytes = watch.conclude()
        _report_ended(
            self.control,
            self.number,
            self.exit_code,
            killed=killed,
            limit=limit,
            cpu_s=watch.cpu_s,
            peak_bytes=peak_bytes,
            without_cgroup=self.started.without_cgroup,
            wall=self.wall.decode("utf-8", "replace"),
        )

    def end_all(self) -> None:
        """Kill all that is left of the tree, and wait until it is gone."""
        if self.cgroup is not None and self.cgroup.kill() and proctree.reap(block_s=_NAMESPACE_ENDS_S):
            return
        if self.prepared.keeps_signals_in:
            proctree.send(-1, signal.SIGKILL)
            bounds.come_last(self.pid)
            proctree.kill_every_signalled()
            return
        if self.init is not None:
            # The end of the namespace's init is the end of all in it, at once, however fast they fork.
            bounds.come_first(self.init_pid)
            try:
                signal.pidfd_send_signal(self.init, signal.SIGKILL)
            except ProcessLookupError:
                pass
            proctree.send(-self.pid, signal.SIGKILL)
            bounds.come_last(self.pid)
            if proctree.reap(block_s=_NAMESPACE_ENDS_S):
                return
        proctree.stop_and_kill(os.getpid())

    def _left(self) -> list[str]:
        return [seen.name for seen in proctree.below(os.getpid()) if seen.name != "bwrap"][:_MAX_NAMES]

    def _send(self, **report: Any) -> None:
        self.control.send(json.dumps({"job": self.number, **report}).encode())

    def _wait(self) -> None:
        # Until the shell has ended by itself (exit_code is set then), or it is time to kill all.
        poll = select.poll()
        for descriptor in (self.control.fileno(), self.pidfd, self.started.status):
            poll.register(descriptor, select.POLLIN)
        while not self.kill:
            ready = {found for found, _ in poll.poll(1000 * self.watch.glance_each_s if self.watch else None)}
            if self.control.fileno() in ready:
                self._hear()
            if self.started.status in ready and not self._read_status():
                poll.unregister(self.started.status)
            if self.pidfd in ready:
                self._ended()
                return
            if self.watch is not None and self.watch.is_over():
                self.kill = True

    def _watching(self) -> LimitWatch:
        # Told of before the job, so without it the child died before it had one.
        if self.watch is None:
            raise _Gone
        return self.watch

    def _ended(self) -> None:
        watch = self._watching()
        _, status, used = os.wait4(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code != -signal.SIGKILL or self.cgroup is None or self.cgroup.hit() != "memory":
            # Else the kernel has ended all of it at once: nothing outlives the shell.
            self.exit_code = code if code >= 0 else 128 - code
        watch.shell_ended(used)

    def _hear(self) -> None:
        data = self.control.recv(_MAX_MESSAGE)
        if not data:
            raise _Gone
        message = json.loads(data)
        # A kill that crossed the end of the job before must not hit this one.
        if message["job"] != self.number:
            return
        if message["op"] == "kill":
            self.kill = True
        else:
            self.watch = LimitWatch(message, self.pid, self.cgroup)

    def _read_status(self) -> bool:
        # What bwrap says of itself. False at its end.
        try:
            data = os.read(self.started.status, 4096)
        except BlockingIOError:
            return True
        self.wall += data
        if self.init is None and (found := _INIT_OF_WALL.search(self.wall)):
            self.init_pid = int(found[1])
            self.init = os.pidfd_open(self.init_pid)
            # Only now, inside its own user namespace, is the command counted apart from all else of this uid.
            self._let_go(self.init_pid, jail.TASKS_OF_BWRAP)
        return bool(data)

    def _let_go(self, pid: int, other_tasks: int) -> None:
        # What waits behind its wall goes on, within its limits.
        try:
            if self.started.limits is not None:
                bounds.limit(pid, self.started.limits)
            if self.prepared.limits_processes:
                bounds.limit_processes(pid, self._watching().allowed["processes"] + other_tasks)
        except ProcessLookupError:
            pass  # dead already
        except OSError as error:
            self.refused = error
            self.kill = True
            return
        if self.block is not None:
            if self.started.opening:
                wait_until_alone()
                with suppress(BrokenPipeError):  # dead already
                    os.write(self.block, self.started.opening)
            os.close(self.block)
            self.block = None

    def _settled(self) -> bool:
        # The wall's own init ends a moment after the shell.
        deadline = time.monotonic() + _SETTLE_S
        while not proctree.reap(block_s=0.002):
            if time.monotonic() >= deadline:
                return False
        return True

    def _drain(self) -> None:
        # Something outlives the shell: it may finish writing, for a short while.
        self._send(event="exited", exit_code=self.exit_code)
        deadline = time.monotonic() + self._watching().allowed["drain_s"]
        while not self.kill and time.monotonic() < deadline and not proctree.reap():
            if select.select([self.control], [], [], 0.01)[0]:
                self._hear()


def _report_ended(control: socket.socket, number: int, exit_code: int | None, **more: Any) -> None:
    # With every field that the worker reads.
    report = {"killed": [], "limit": None, "cpu_s": 0.0, "peak_bytes": 0, "without_cgroup": "", "wall": "", **more}
    control.send(json.dumps({"job": number, "event": "ended", "exit_code": exit_code, **report}).encode())

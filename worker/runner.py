"""The launcher's process of one slot: runs one job after the other, watches its limits, ends its tree.

Imports nothing but the standard library and its neighbours, which do the same.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import select
import signal
import socket
import time
from typing import Any, NoReturn

from worker import jail, proctree
from worker.cgroups import Cgroup

_PR_SET_CHILD_SUBREAPER = 36
_GLANCE_EACH_S = 0.025
_LOOK_EACH_S = 0.1
_LOOKS_COST_AT_MOST = 0.05
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
    _come_first()
    if prepared.keeps_signals_in:
        jail.keep_signals_in()
    number = 0
    while True:
        number += 1
        cgroup, without = _make_cgroup(prepared)
        status_read, status_write = os.pipe()
        block_read, block_write = os.pipe()
        pid = cgroup.fork() if cgroup else os.fork()
        if pid == 0:
            for unused in (status_read, block_write):
                os.close(unused)
            control.close()
            jail.become(jobs, prepared, status_write, block_read, cgroup)
        for unused in (status_write, block_read):
            os.close(unused)
        job = Job(control, prepared, number, pid, status_read, block_write)
        job.cgroup, job.without_cgroup = cgroup, without
        try:
            job.follow()
        except (_Gone, OSError):
            job.end_all()
            job.close()
            os._exit(0)
        job.close()


def _make_cgroup(prepared: jail.Prepared) -> tuple[Cgroup | None, str]:
    # Where none can be made any more the watch and the rlimits are what is left, and the worker says so.
    try:
        return Cgroup(prepared.delegated) if prepared.delegated else None, ""
    except OSError as error:
        return None, str(error.strerror)


def _come_first(pid: int = 0) -> None:
    # Whoever watches a fork bomb must not wait its turn among the forks, nor whoever ends it.
    try:
        os.sched_setscheduler(pid, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        pass  # an ordinary user: commands have been made nicer instead


class Job:
    """One job, from waiting for it to the end of its tree."""

    def __init__(
        self, control: socket.socket, prepared: jail.Prepared, number: int, pid: int, status: int, block: int
    ) -> None:
        self.control = control
        self.prepared = prepared
        self.number = number
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.status = status
        self.cgroup: Cgroup | None = None
        self.without_cgroup = ""
        self.block: int | None = block
        self.wall = b""
        self.init: int | None = None
        self.init_pid = 0
        self.watch: dict[str, Any] = {}
        self.look_at = 0.0
        self.tasks_before = 0
        self.kill = False
        self.limit: str | None = None
        self.exit_code: int | None = None
        self.cpu_s = 0.0
        self.orphans_cpu_s = 0.0
        self.peak_bytes = 0
        os.set_blocking(status, False)

    def close(self) -> None:
        """Give the descriptors back."""
        os.close(self.pidfd)
        os.close(self.status)
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
        self._wait()
        killed: list[str] = []
        if self.exit_code is None:
            self.end_all()
        elif not self._settled():
            self._drain()
            killed = self._left()
            self.end_all()
        self._read_status()
        self._send(
            event="ended",
            exit_code=self.exit_code,
            killed=killed,
            limit=self._limit_hit(),
            cpu_s=self.cpu_s,
            peak_bytes=(self.cgroup.peak_bytes() if self.cgroup else 0) or self.peak_bytes,
            without_cgroup=self.without_cgroup,
            wall=self.wall.decode("utf-8", "replace"),
        )

    def _limit_hit(self) -> str | None:
        if self.limit is None and self.cgroup is not None:
            self.limit = self.cgroup.hit()
        if self.limit is None and self.peak_bytes >= self.watch["memory_bytes"]:
            self.limit = "memory"
        return self.limit

    def end_all(self) -> None:
        """Kill all that is left of the tree, and wait until it is gone."""
        if self.cgroup is not None and self.cgroup.kill() and proctree.reap(block_s=_NAMESPACE_ENDS_S):
            return
        if self.prepared.keeps_signals_in:
            proctree.kill_every_signalled()
            return
        if self.init is not None:
            # The end of the namespace's init is the end of all in it, at once, however fast they fork.
            _come_first(self.init_pid)
            try:
                signal.pidfd_send_signal(self.init, signal.SIGKILL)
            except ProcessLookupError:
                pass
            if proctree.reap(block_s=_NAMESPACE_ENDS_S):
                return
        proctree.stop_and_kill(os.getpid())

    def _left(self) -> list[str]:
        names = [seen.name for seen in proctree.below(os.getpid())]
        return [name for name in names if name != "bwrap"][:_MAX_NAMES]

    def _send(self, **report: Any) -> None:
        self.control.send(json.dumps({"job": self.number, **report}).encode())

    def _wait(self) -> None:
        # Until the shell has ended by itself (exit_code is set then), or it is time to kill all.
        poll = select.poll()
        for descriptor in (self.control.fileno(), self.pidfd, self.status):
            poll.register(descriptor, select.POLLIN)
        while not self.kill:
            timeout = _GLANCE_EACH_S * 1000 if self.watch else None
            ready = {found for found, _ in poll.poll(timeout)}
            if self.control.fileno() in ready:
                self._hear()
            if self.status in ready and not self._read_status():
                poll.unregister(self.status)
            if self.pidfd in ready:
                self._ended()
                return
            if self.watch and self._hit():
                self.kill = True
            elif self.watch and (time.monotonic() >= self.look_at or self._multiplies()):
                self._look()

    def _ended(self) -> None:
        if not self.watch:
            raise _Gone
        _, status, used = os.wait4(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code != -signal.SIGKILL or self.cgroup is None or self.cgroup.hit() != "memory":
            # Else the kernel has ended all of it at once: nothing outlives the shell.
            self.exit_code = code if code >= 0 else 128 - code
        self.cpu_s = max(self.cpu_s, used.ru_utime + used.ru_stime)
        self.peak_bytes = max(self.peak_bytes, used.ru_maxrss * 1024)

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
            self.watch = message
            self.look_at = time.monotonic() + _LOOK_EACH_S / 2
            self.tasks_before = _tasks_of_host()

    def _read_status(self) -> bool:
        # What bwrap says of itself. False at its end.
        try:
            data = os.read(self.status, 4096)
        except BlockingIOError:
            return True
        self.wall += data
        if self.init is None and (found := _INIT_OF_WALL.search(self.wall)):
            self.init_pid = int(found[1])
            self.init = os.pidfd_open(self.init_pid)
            self._limit_processes(self.init_pid)
            if self.block is not None:
                os.close(self.block)
                self.block = None
        return bool(data)

    def _limit_processes(self, init: int) -> None:
        # Only now, inside its own user namespace, is the command counted apart from all else of this uid.
        if os.getuid() != 0:
            wanted = self.watch["processes"] + 2
            _, ceiling = resource.prlimit(init, resource.RLIMIT_NPROC)
            if ceiling != resource.RLIM_INFINITY:
                wanted = min(wanted, ceiling)
            resource.prlimit(init, resource.RLIMIT_NPROC, (wanted, wanted))

    def _multiplies(self) -> bool:
        # A glance that costs microseconds: a fork bomb shows in the number of tasks of the whole host.
        return bool(_tasks_of_host() - self.tasks_before >= self.watch["processes"])

    def _hit(self) -> bool:
        # What the kernel keeps count of costs microseconds to ask for, however many processes the host has.
        if self.cgroup is not None:
            self.limit = self.cgroup.hit() or ("cpu" if self.cgroup.cpu_s() >= self.watch["cpu_s"] else None)
        return self.limit is not None

    def _look(self) -> None:
        started = time.monotonic()
        self._collect_orphans()
        used = proctree.usage(proctree.below(os.getpid()), self.watch["memory_bytes"])
        cpu_s = used.cpu_s + self.orphans_cpu_s
        self.cpu_s = max(self.cpu_s, cpu_s)
        self.peak_bytes = max(self.peak_bytes, used.memory_bytes)
        for limit, amount, allowed in (
            ("cpu", cpu_s, self.watch["cpu_s"]),
            ("memory", used.memory_bytes, self.watch["memory_bytes"]),
            ("processes", used.tasks, self.watch["processes"]),
        ):
            if amount >= allowed:
                self.limit = limit
                self.kill = True
        # Every process of the host is read: where there are many, there are fewer looks.
        now = time.monotonic()
        self.look_at = now + max(_LOOK_EACH_S, (now - started) / _LOOKS_COST_AT_MOST)

    def _collect_orphans(self) -> None:
        # Dead ones that nobody collects count against everybody's processes.
        while True:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None or found.si_pid == self.pid:
                return
            _, _, used = os.wait4(found.si_pid, os.WNOHANG)
            self.orphans_cpu_s += used.ru_utime + used.ru_stime

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
        deadline = time.monotonic() + self.watch["drain_s"]
        while not self.kill and time.monotonic() < deadline and not proctree.reap():
            if select.select([self.control], [], [], 0.01)[0]:
                self._hear()


def _tasks_of_host() -> int:
    with open("/proc/loadavg", "rb", buffering=0) as file:
        return int(file.read(256).split()[3].split(b"/")[1])

"""A command's process where a cgroup awaits it: forked into that before there is a command, only clone3 can do that.

All that can be done beforehand is done before the job arrives. Imports nothing but the standard library and its
neighbours, which do the same.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
from typing import NoReturn

from worker import bounds, jail, landlock, proctree
from worker.cgroups import Cgroup

_PR_SET_PDEATHSIG = 1
_ALL_DESCRIPTORS = 2**31 - 1

_libc = ctypes.CDLL(None, use_errno=True)


def fork(jobs: socket.socket, control: socket.socket, prepared: jail.Prepared) -> jail.Started:
    """A child that waits for the next job on the jobs socket. Where no cgroup can be made any more it has none.

    Raises:
        OSError: no process can be made.
    """
    cgroup, without = _make_cgroup(prepared)
    status, status_end = os.pipe()
    block_end, block = os.pipe()
    pid = cgroup.fork() if cgroup else os.fork()
    if pid == 0:
        for unused in (status, block):
            os.close(unused)
        control.close()
        _become(jobs, prepared, status_end, block_end, cgroup)
    for unused in (status_end, block_end):
        os.close(unused)
    return jail.Started(pid, status, block, cgroup=cgroup, without_cgroup=without)


def _make_cgroup(prepared: jail.Prepared) -> tuple[Cgroup | None, str]:
    # Without one the watch and the rlimits are what is left, and the worker says so.
    try:
        return Cgroup(prepared.delegated) if prepared.delegated else None, ""
    except OSError as error:
        return None, str(error.strerror)


def _become(jobs: socket.socket, prepared: jail.Prepared, status: int, block: int, cgroup: Cgroup | None) -> NoReturn:
    # Waits for the job, walls itself in, becomes the command. What fails is said on the jobs socket.
    try:
        os.setsid()
        refused = _enter(cgroup)
        _die_with_parent()
        ruleset = jail.ruleset_of_system(prepared) if prepared.tier == "landlock" else -1
        header, descriptors = jail.receive(jobs)
        if not header:
            os._exit(0)
        _reset_signals()
        job = json.loads(header)
        stdout, stderr, script, cwd, workspace = descriptors
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        argv = jail.bash_arguments(script)
        kept = [jobs.fileno(), script]
        bounds.limit(0, job["limits"])
        if cgroup is not None:
            _limit_together(cgroup, refused, prepared, job["limits"])
        if prepared.tier == "bwrap":
            passed = [jail.filter_descriptor(prepared), status, block]
            for descriptor in passed:
                os.set_inheritable(descriptor, True)
            _close_all_but([*kept, *passed])
            # The environment is inherited: arguments can be read by every user of the host, and it may hold secrets.
            os.execve(prepared.bwrap, [*jail.bwrap_arguments(job, prepared, passed), *argv], job["env"])
        os.fchdir(cwd)
        if prepared.limits_processes:
            bounds.limit_processes(0, job["limits"]["processes"] + proctree.tasks_of_host())
        if prepared.tier == "landlock":
            jail.grant_to_job(ruleset, prepared, job, workspace)
            jail.shed_privileges(prepared)
            landlock.enter(ruleset)
        _close_all_but(kept)
        os.execve(prepared.bash, argv, job["env"])
    except BaseException as error:  # noqa: BLE001 - a forked child must never return into its parent's code
        jail.explain(jobs, error)
    os._exit(jail.SETUP_FAILED)


def _enter(cgroup: Cgroup | None) -> OSError | None:
    # Before there is a job: to move costs the kernel milliseconds. What went wrong is said when there is one.
    try:
        if cgroup is not None:
            cgroup.enter()
    except OSError as error:
        return error
    return None


def _limit_together(cgroup: Cgroup, refused: OSError | None, prepared: jail.Prepared, limits: dict[str, int]) -> None:
    if refused is not None:
        raise refused
    more = jail.TASKS_OF_BWRAP if prepared.tier == "bwrap" else 0
    cgroup.limit(memory_bytes=limits["memory_bytes"], processes=limits["processes"] + more)


def _close_all_but(kept: list[int]) -> None:
    # Everything is close-on-exec already; one descriptor forgotten would be a way out, so it is made sure of.
    low = 3
    for descriptor in sorted(kept):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, _ALL_DESCRIPTORS)


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _reset_signals() -> None:
    for number in jail.SIGNALS_TO_RESET:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])

"""What one process may use, and all that it starts: priorities and rlimits, of this process or of another.

Imports nothing but the standard library: the launcher runs it.
"""

from __future__ import annotations

import ctypes
import os
import resource

_PR_SET_DUMPABLE = 4
_NICENESS = 5
_LAST = 19

_libc = ctypes.CDLL(None, use_errno=True)


def come_first(pid: int) -> None:
    """For whoever watches a fork bomb or ends it (0 for this process): it must not wait its turn among the forks."""
    try:
        os.sched_setscheduler(pid, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        pass  # an ordinary user: commands have been made nicer instead


def come_last(group: int) -> None:
    """For a process group that has been killed, so that hundreds that exit at once leave the processors to others.

    Not before it is killed: those that live would hold the kernel's locks for as long as they wait for their turn, and
    what they fork meanwhile would keep them waiting.
    """
    _tell(group, "autogroup", str(_LAST))
    try:
        os.setpriority(os.PRIO_PGRP, group, _LAST)
    except OSError:
        pass  # gone already


def limit(pid: int, limits: dict[str, int]) -> None:
    """Bounds a process (0 for this one) and all that it starts from now on.

    Raises:
        OSError: the kernel refused.
    """
    os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, os.getpid()) + _NICENESS)
    if not pid:
        # The files of /proc/self are root's while not dumpable.
        _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    # Where the scheduler has a group for each session, niceness counts within it only.
    _tell(pid, "autogroup", str(_NICENESS))
    # When the host runs out of memory, commands go before workers.
    _tell(pid, "oom_score_adj", "800")
    cpu_s = int(limits["cpu_s"]) + 1
    for what, soft, hard in (
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_CPU, cpu_s, cpu_s + 1),
        (resource.RLIMIT_FSIZE, limits["file_bytes"], limits["file_bytes"]),
        (resource.RLIMIT_NOFILE, limits["open_files"], limits["open_files"]),
        # The watch ends a tree at its limit; this bounds what one process can take between two looks.
        (resource.RLIMIT_DATA, 2 * limits["memory_bytes"], 2 * limits["memory_bytes"]),
    ):
        _, ceiling = resource.prlimit(pid, what)
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.prlimit(pid, what, (soft, hard))


def _tell(pid: int, name: str, value: str) -> None:
    try:
        descriptor = os.open(f"/proc/{pid or 'self'}/{name}", os.O_WRONLY)
    except OSError:
        return
    try:
        os.write(descriptor, value.encode())
    except OSError:
        pass  # a stricter system, or asked too often; nothing depends on it
    finally:
        os.close(descriptor)


def limit_processes(pid: int, wanted: int) -> None:
    """Bounds how many tasks its uid may have, in its user namespace, when a process (0 for this one) makes another.

    Raises:
        OSError: the kernel refused.
    """
    _, ceiling = resource.prlimit(pid, resource.RLIMIT_NPROC)
    if ceiling != resource.RLIM_INFINITY:
        wanted = min(wanted, ceiling)
    resource.prlimit(pid, resource.RLIMIT_NPROC, (wanted, wanted))

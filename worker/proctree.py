"""The processes below one process: who they are, what they use, and how to end all of them.

Read from /proc by parent pid; the kernel's own list of children is a build option that many kernels lack. Runs in the
launcher, never in the worker. Imports nothing but the standard library.
"""

from __future__ import annotations

import os
import signal
from typing import NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PASSES_OF_STOPPING = 200


class Seen(NamedTuple):
    """One process as /proc/<pid>/stat showed it."""

    pid: int
    name: str
    state: str
    cpu_s: float
    """Its own and that of children it has waited for."""
    threads: int
    resident_bytes: int


class Usage(NamedTuple):
    """What a tree uses now."""

    cpu_s: float
    tasks: int
    memory_bytes: int


def _read_stat(pid: int) -> tuple[int, Seen] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read(4096).decode("utf-8", "replace")
    except OSError:
        return None
    opening, closing = text.find("("), text.rfind(")")
    fields = text[closing + 2 :].split()
    if closing < 0 or len(fields) < 22:
        return None
    seen = Seen(
        pid=pid,
        name=text[opening + 1 : closing],
        state=fields[0],
        cpu_s=sum(int(ticks) for ticks in fields[11:15]) / _TICKS_PER_S,
        threads=int(fields[17]),
        resident_bytes=int(fields[21]) * _PAGE_BYTES,
    )
    return int(fields[1]), seen


def _by_parent() -> dict[int, list[Seen]]:
    families: dict[int, list[Seen]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal() and (found := _read_stat(int(name))):
            families.setdefault(found[0], []).append(found[1])
    return families


def children(root: int) -> list[int]:
    """The pids of a process's own children, alive or waiting to be collected."""
    return [seen.pid for seen in _by_parent().get(root, ())]


def below(root: int) -> list[Seen]:
    """All living descendants of a process; zombies are left out."""
    families = _by_parent()
    result: list[Seen] = []
    waiting = [root]
    while waiting:
        for seen in families.get(waiting.pop(), ()):
            waiting.append(seen.pid)
            if seen.state not in "ZX":
                result.append(seen)
    return result


def tasks_of_host() -> int:
    """How many processes and threads there are: all that can be asked in microseconds."""
    with open("/proc/loadavg", "rb", buffering=0) as file:
        return int(file.read(256).split()[3].split(b"/")[1])


def usage(tree: list[Seen], memory_limit_bytes: int) -> Usage:
    """What the processes use together. Pages shared between them are told apart only when the limit is in question."""
    resident = sum(seen.resident_bytes for seen in tree)
    if resident > memory_limit_bytes:
        resident = sum(_proportional_bytes(seen) for seen in tree)
    return Usage(sum(seen.cpu_s for seen in tree), sum(seen.threads for seen in tree), resident)


def _proportional_bytes(seen: Seen) -> int:
    try:
        with open(f"/proc/{seen.pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return seen.resident_bytes


def stop_and_kill(root: int) -> None:
    """End every descendant of a process, which must be a subreaper and the caller.

    They are stopped before they are killed, pass after pass until none is new: what is stopped can't fork, and still
    counts against the limit of processes, so that a fork bomb runs dry instead of racing the killer.
    """
    stopped: set[int] = set()
    for _ in range(_PASSES_OF_STOPPING):
        new = [seen.pid for seen in below(root) if seen.pid not in stopped]
        if not new:
            break
        stopped.update(new)
        for pid in new:
            send(pid, signal.SIGSTOP)
    while True:
        for seen in below(root):
            send(seen.pid, signal.SIGKILL)
        if reap(block_s=0.05):
            return


def kill_every_signalled() -> None:
    """End all that this process may signal at all: its descendants, where a wall around signals keeps it to them.

    One call, which no fork slips through: the kernel holds the list of tasks meanwhile.
    """
    while True:
        send(-1, signal.SIGKILL)
        if reap(block_s=0.05):
            return


def reap(block_s: float = 0.0) -> bool:
    """Collect dead children; True when none is left at all, dead or alive. Needs SIGCHLD to be blocked."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0 and (block_s <= 0 or signal.sigtimedwait([signal.SIGCHLD], block_s) is None):
            return False


def reap_all_but(pid: int) -> float:
    """Collect dead children, up to one that is left for later; the CPU seconds that they had used.

    Those that nobody collects count against everybody's processes.
    """
    used_s = 0.0
    while True:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None or found.si_pid == pid:
            return used_s
        _, _, used = os.wait4(found.si_pid, os.WNOHANG)
        used_s += used.ru_utime + used.ru_stime


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process that may be gone."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # gone, or a process that entered another user namespace and dies with its parent there

"""What a container's default seccomp profile leaves of the kernel, for a process that forks itself into it.

As in Docker's and Kubernetes' RuntimeDefault without CAP_SYS_ADMIN: no user namespaces, no mounts, no clone3; an
ordinary uid that can gain nothing. bubblewrap can't start in there.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import struct
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from worker import seccomp

ORDINARY_UID = 23456
_DENIED = ("unshare", "setns", "mount", "umount2", "pivot_root", "bpf", "ptrace", "keyctl", "perf_event_open")
_CLONE_NEW_ANY = 0x7E020000


def default_profile() -> bytes:
    """The filter as a `struct sock_filter[]`."""
    calls = seccomp.CALLS[platform.machine()]

    def step(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("<HBBI", code, yes, no, k)

    load, equal, any_bit, answer = 0x20, 0x15, 0x45, 0x06
    program = [step(load, 0)]
    for name in _DENIED:
        program += [step(equal, calls[name], 0, 1), step(answer, 0x50000 | errno.EPERM)]
    program += [step(equal, calls["clone3"], 0, 1), step(answer, 0x50000 | errno.ENOSYS)]
    program += [step(equal, calls["clone"], 0, 3), step(load, 16), step(any_bit, _CLONE_NEW_ANY, 0, 1)]
    program += [step(answer, 0x50000 | errno.EPERM), step(answer, 0x7FFF0000)]
    return b"".join(program)


def python_for_everybody() -> str:
    """An interpreter that an ordinary user may run: root's own may lie in root's home."""
    for path in (os.path.realpath(sys.executable), "/usr/local/bin/python3", "/usr/bin/python3"):
        if os.path.exists(path) and all(os.stat(part).st_mode & 0o1 for part in [path, *map(str, Path(path).parents)]):
            return path
    raise FileNotFoundError("no Python that an ordinary user may run")


def inside(work: Callable[[], dict[str, str]]) -> dict[str, str]:
    """What `work` returns (as JSON would carry it) when it runs in such a container."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(ORDINARY_UID)
                os.setuid(ORDINARY_UID)
                sys.executable = python_for_everybody()
            seccomp.install(default_profile())
            answer: dict[str, Any] = {"value": work()}
        except BaseException:  # noqa: BLE001 - a forked child must never return into the test
            answer = {"error": traceback.format_exc()}
        with os.fdopen(write_end, "w") as file:
            json.dump(answer, file)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as file:
        answer = json.load(file)
    os.waitpid(pid, 0)
    if "error" in answer:
        raise AssertionError(answer["error"])
    value: dict[str, str] = answer["value"]
    return value

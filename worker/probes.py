"""What this host offers for the wall around commands, part by part; `worker.sandbox.describe` tries the walls."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable
from typing import NamedTuple

from worker import bubblewrap, landlock, seccomp
from worker.bubblewrap import SYSTEM_PATH
from worker.delegation import NotDelegated, find

_CLONE_NEWUSER = 0x10000000
_PR_GET_SECCOMP = 21
_PR_SET_DUMPABLE = 4

_libc = ctypes.CDLL(None, use_errno=True)


class Probe(NamedTuple):
    """One check. `remedy` says what to change where it is not ok; `needed` whether commands depend on it."""

    what: str
    ok: bool
    detail: str
    remedy: str = ""
    needed: bool = False


def probe() -> list[Probe]:
    """Every check of a part, each for real."""
    checks: tuple[Callable[[], Probe], ...] = (_bash, _user_namespaces, _bubblewrap, _landlock, _seccomp, _limits)
    return [check() for check in checks]


def forbid_looking_in() -> bool:
    """Keep this process' memory and environment from others of its user; True when that worked.

    For the worker, once it has read its settings. Core dumps and debuggers of the same user are shut out as well.
    """
    return bool(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)


def _bash() -> Probe:
    path = shutil.which("bash", path=SYSTEM_PATH)
    return Probe("bash", path is not None, path or f"not in {SYSTEM_PATH}", "install bash", needed=True)


def _user_namespaces() -> Probe:
    pid = os.fork()
    if pid == 0:
        os._exit(0 if _libc.unshare(_CLONE_NEWUSER) == 0 else ctypes.get_errno() & 0xFF or 1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    detail = "may be made" if code == 0 else f"unshare(CLONE_NEWUSER): {os.strerror(code)}"
    remedy = (
        "raise user.max_user_namespaces, set kernel.unprivileged_userns_clone=1, or run the container with a seccomp "
        "profile that passes unshare and clone"
    )
    return Probe("user namespaces", code == 0, detail, remedy)


def _bubblewrap() -> Probe:
    found = [(path, bubblewrap.version(path)) for path in bubblewrap.candidates()]
    wanted = ".".join(map(str, bubblewrap.MINIMUM_VERSION))
    detail = ", ".join(f"{path} {'.'.join(map(str, version)) or 'does not run'}" for path, version in found)
    ok = any(version >= bubblewrap.MINIMUM_VERSION for _, version in found)
    return Probe("bubblewrap", ok, detail or "not installed", f"install bubblewrap {wanted} or newer")


def _landlock() -> Probe:
    version = landlock.abi()
    detail = f"ABI {version}" if version else "landlock_create_ruleset: not in this kernel, or not enabled"
    remedy = f"a kernel of 6.7 or newer (ABI {landlock.MINIMUM_ABI}) with landlock in its lsm= list"
    return Probe("Landlock", version >= landlock.MINIMUM_ABI, detail, remedy)


def _seccomp() -> Probe:
    try:
        length = len(seccomp.assemble(tcp=False, system_v=False)) // 8
    except seccomp.Unsupported as error:
        return Probe("seccomp", False, str(error), "run on x86_64 or aarch64")
    ok = _libc.prctl(_PR_GET_SECCOMP, 0, 0, 0, 0) >= 0
    return Probe("seccomp", ok, f"a filter of {length} instructions" if ok else "prctl(PR_GET_SECCOMP) fails", "")


def _limits() -> Probe:
    # Nothing depends on it: elsewhere the runner's watch and rlimits do it. Of this process' cgroup, not the workers'.
    remedy = "optional: run the workers as a systemd unit with Delegate=memory pids (deploy/toolreef.service)"
    try:
        found = find()
    except NotDelegated as problem:
        return Probe("limits", False, f"rlimits: {problem}", remedy)
    return Probe("limits", True, f"{found.in_words()} at {found.path}")

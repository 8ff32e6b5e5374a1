"""Whether the cgroup (version 2) that the worker runs in is delegated to it, and making it ready to be divided."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from worker.cgroups import CONTROLLERS, Delegated, read, sweep, write

_WORKERS = "toolreef.workers"
_DELEGATES = ("user.delegate", "trusted.delegate")
_SYSTEMD = "/run/systemd/system"
_PASSES_OF_MOVING = 50


class NotDelegated(Exception):
    """Commands can have no cgroups of their own here; the message names the cgroup, and the call that failed."""


def find(proc: str = "/proc/self") -> Delegated:
    """Where commands could have cgroups of their own. Only looks. `proc` has the files `cgroup` and `mountinfo`.

    Raises:
        NotDelegated: nowhere.
    """
    own, top = _own(proc)
    above, is_leaf = os.path.dirname(own), own != top and os.path.basename(own) == _WORKERS
    # A unit may put its processes below what is delegated to it, and so do we.
    candidates = [above] if is_leaf else [own] if own == top else [own, above]
    problems = []
    for path in candidates:
        try:
            offered = read(path, "cgroup.controllers").split()
            controllers = tuple(name for name in CONTROLLERS if name in offered)
            if not controllers:
                raise NotDelegated(f"the cgroup at {path} has neither memory nor pids in cgroup.controllers")
            _require_delegated(path, top, whole=path == top and (is_leaf or path == own))
            return Delegated(path, controllers)
        except NotDelegated as problem:
            problems.append(problem)
        except OSError as error:
            problems.append(NotDelegated(f"the cgroup at {path}: {error.strerror}"))
    raise problems[0]


def claim() -> Delegated:
    """Makes what `find` found ready: this process and its neighbours move to a leaf, controllers pass on to children,
    and what dead workers left is removed.

    Raises:
        NotDelegated: it can't be done; commands are limited as before.
    """
    found = find()
    try:
        if os.path.exists(os.path.join(found.path, "cgroup.type")):
            _move_down(found.path)
        # Else it is the root of all, where processes may stay.
    except OSError as error:
        raise NotDelegated(f"the cgroup at {found.path} can't be divided: {error.strerror}") from None
    problem = ""
    passed_on = read(found.path, "cgroup.subtree_control").split()
    for name in found.controllers:
        try:
            if name not in passed_on:
                write(found.path, "cgroup.subtree_control", f"+{name}")
        except OSError as error:
            problem = str(error.strerror)
    passed_on = read(found.path, "cgroup.subtree_control").split()
    controllers = tuple(name for name in found.controllers if name in passed_on)
    if not controllers:
        raise NotDelegated(f"the cgroup at {found.path} can't be divided: {problem}")
    sweep(found.path)
    return Delegated(found.path, controllers)


def _own(proc: str) -> tuple[str, str]:
    """The directory of this process' cgroup, and the topmost that can be seen."""
    with open(f"{proc}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        own = next((line[3:].rstrip("\n") for line in file if line.startswith("0::")), None)
    if own is None:
        raise NotDelegated("the kernel has no cgroups of version 2")
    for root, place in _mounts(proc):
        inside = own[len(root.rstrip("/")) :]
        if own == root or root == "/" or (own.startswith(root) and inside.startswith("/")):
            path = os.path.normpath(place + "/" + inside)
            if "/.." not in own and os.path.isdir(path):
                return path, place
    raise NotDelegated(f"no cgroup2 mount shows {own}")


def _mounts(proc: str) -> Iterator[tuple[str, str]]:
    with open(f"{proc}/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            if after.startswith("cgroup2 "):
                fields = before.split()
                yield _plain(fields[3]), _plain(fields[4])


def _plain(field: str) -> str:
    """A path as mountinfo writes it, where blanks and backslashes are octal escapes."""
    for escape in ("\\040", "\\011", "\\012", "\\134"):
        field = field.replace(escape, chr(int(escape[1:], 8)))
    return field


def _require_delegated(path: str, top: str, *, whole: bool) -> None:
    """To be root is not enough: what systemd has not delegated it changes as it likes. `whole`: all that can be seen of
    the hierarchy is this process', as in a container."""
    for name in ("cgroup.procs", "cgroup.subtree_control"):
        _require_writable(os.path.join(path, name), path)
    if not os.access(path, os.W_OK):
        raise NotDelegated(f"the cgroup at {path} is not delegated: mkdir: {os.strerror(errno.EACCES)}")
    if whole or not os.path.isdir(_SYSTEMD):
        return
    for name in _DELEGATES:
        try:
            if os.getxattr(path, name) == b"1":
                return
        except OSError:
            continue  # an older kernel or systemd, or not for us to read
    # An ordinary user's is delegated where what lies above is not the user's as well.
    if os.geteuid() == 0 or path == top or os.access(os.path.join(os.path.dirname(path), "cgroup.procs"), os.W_OK):
        raise NotDelegated(f"the cgroup at {path} is not delegated: getxattr user.delegate: none")


def _require_writable(file: str, path: str) -> None:
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_CLOEXEC))
    except OSError as error:
        name = os.path.basename(file)
        raise NotDelegated(f"the cgroup at {path} is not delegated: open {name}: {error.strerror}") from None


def _move_down(path: str) -> None:
    leaf = os.path.join(path, _WORKERS)
    os.makedirs(leaf, exist_ok=True)
    for _ in range(_PASSES_OF_MOVING):
        pids = read(path, "cgroup.procs").split()
        for pid in pids:
            try:
                write(leaf, "cgroup.procs", pid)
            except OSError as error:
                if error.errno not in (errno.ESRCH, errno.EINVAL):
                    raise
        if not pids:
            return

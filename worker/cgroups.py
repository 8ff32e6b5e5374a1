"""A cgroup (version 2) of its own for each command, where the one that the worker runs in is delegated to it.

    <delegated> ─┬─ toolreef.workers        the workers and their launchers: what has children may hold no process
                 └─ toolreef.job.<random>   one command each; whoever made it holds a flock on the directory

Imports nothing but the standard library: the launcher runs it too.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import secrets
import signal
import struct
import time
from typing import NamedTuple

CONTROLLERS = ("memory", "pids")
"""What limits a command. Either one is of use without the other."""

_JOB = "toolreef.job."
_CLONE3 = 435
_CLONE_INTO_CGROUP = 0x200000000
_ENDS_S = 2.0
_LOOK_AGAIN_S = 0.005


class Delegated(NamedTuple):
    """A cgroup's directory that is ours to divide, and what of `CONTROLLERS` it offers."""

    path: str
    controllers: tuple[str, ...]

    def in_words(self) -> str:
        """For heartbeats and `toolreef doctor`."""
        return f"cgroup v2 ({', '.join(self.controllers)})"


def sweep(path: str) -> int:
    """Ends and removes the commands' cgroups that nobody holds any more; how many."""
    removed = 0
    for name in _children(path):
        if not name.startswith(_JOB):
            continue
        left = os.path.join(path, name)
        try:
            descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            removed += _remove_all(left)
        except OSError:
            pass  # its worker lives
        finally:
            os.close(descriptor)
    return removed


class Cgroup:
    """One command's. Made before the command is known, entered by the process that becomes it, removed by `close`.

    Raises:
        OSError: it can't be made; `strerror` begins with the call.
    """

    def __init__(self, delegated: Delegated) -> None:
        self._controllers = delegated.controllers
        self._is_inside = False
        while True:
            self.path = os.path.join(delegated.path, _JOB + secrets.token_hex(6))
            try:
                os.mkdir(self.path)
            except OSError as error:
                raise OSError(error.errno, f"mkdir {self.path}: {os.strerror(error.errno or 0)}") from None
            try:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # a sweeper came between
            fcntl.flock(self._fd, fcntl.LOCK_SH)
            if os.path.isdir(self.path):
                return
            os.close(self._fd)

    def fork(self) -> int:
        """As os.fork, with a child that is in there from the first, where the kernel has clone3; else `enter` moves it.

        Only for a process with one thread. A move waits for all processors: 13 ms on a host where this takes 0.3.

        Raises:
            OSError: no process can be made.
        """
        # Nothing but os.fork's own steps, with another system call in their middle. PyDLL keeps the interpreter's lock.
        arguments = struct.pack("=11Q", _CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, self._fd)
        held = ctypes.create_string_buffer(arguments, len(arguments))
        ctypes.pythonapi.PyOS_BeforeFork()
        pid: int = ctypes.PyDLL(None).syscall(ctypes.c_long(_CLONE3), held, ctypes.c_size_t(len(arguments)))
        if pid == 0:
            ctypes.pythonapi.PyOS_AfterFork_Child()
            self._is_inside = True
            return 0
        ctypes.pythonapi.PyOS_AfterFork_Parent()
        return pid if pid > 0 else os.fork()

    def enter(self) -> None:
        """Puts this process in, and all that it starts from now on.

        Raises:
            OSError: the kernel refused; `strerror` begins with the call.
        """
        if not self._is_inside:
            write(self._fd, "cgroup.procs", "0")

    def limit(self, *, memory_bytes: int, processes: int) -> None:
        """Bounds what is in there, as far as its controllers reach. Called by what is in there, before it is a command.

        Raises:
            OSError: the kernel refused; `strerror` begins with the call.
        """
        if "pids" in self._controllers:
            write(self._fd, "pids.max", str(processes))
        if "memory" not in self._controllers:
            return
        write(self._fd, "memory.max", str(memory_bytes))
        for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
            try:
                write(self._fd, name, value)
            except FileNotFoundError:
                pass  # no swap to account for, or a kernel before 4.19, where the runner ends what the kernel leaves

    def hit(self) -> str | None:
        """The limit that has been run into: "memory" or "processes"."""
        # Not `max`: a file's cached pages reach that too, and give way without harm.
        if "memory" in self._controllers and self._count("memory.events", "oom_kill"):
            return "memory"
        if "pids" in self._controllers and self._count("pids.events", "max"):
            return "processes"
        return None

    def cpu_s(self) -> float:
        """What all that ever was in there has used; 0.0 where the kernel does not say."""
        return self._count("cpu.stat", "usage_usec") / 1e6

    def peak_bytes(self) -> int:
        """The most memory that was in use, caches of files among it; 0 where the kernel does not say."""
        try:
            return int(read(self._fd, "memory.peak"))
        except (OSError, ValueError):
            return 0

    def kill(self) -> bool:
        """Ends all that is in there, in one blow that no fork slips through; False where the kernel can't."""
        try:
            write(self._fd, "cgroup.kill", "1")
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Removes it. What is still in there stays, for a sweeper."""
        try:
            os.rmdir(self.path)
        except OSError:
            _remove_all(self.path)
        os.close(self._fd)

    def _count(self, name: str, key: str) -> int:
        try:
            for line in read(self._fd, name).splitlines():
                word, _, number = line.partition(" ")
                if word == key:
                    return int(number)
        except (OSError, ValueError):
            pass  # the controller is not there, or the kernel is older than the file
        return 0


def _remove_all(path: str) -> bool:
    """Removes a cgroup with what a command may have made in it, once nothing lives there any more."""
    deadline = time.monotonic() + _ENDS_S
    try:
        write(path, "cgroup.kill", "1")
    except OSError:
        pass  # gone, or an older kernel: it goes when it is empty
    while True:
        for directory, _, _ in os.walk(path, topdown=False):
            try:
                os.rmdir(directory)
            except OSError:
                continue
        if not os.path.isdir(path):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_AGAIN_S)


def _children(path: str) -> list[str]:
    with os.scandir(path) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def read(directory: str | int, name: str) -> str:
    """A file of a cgroup's directory.

    Raises:
        OSError: `strerror` begins with the call.
    """
    descriptor = _open(directory, name, os.O_RDONLY)
    try:
        return os.read(descriptor, 65536).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def write(directory: str | int, name: str, value: str) -> None:
    """Sets one.

    Raises:
        OSError: `strerror` begins with the call.
    """
    descriptor = _open(directory, name, os.O_WRONLY)
    try:
        os.write(descriptor, value.encode())
    except OSError as error:
        raise OSError(error.errno, f"write {name}: {os.strerror(error.errno or 0)}") from None
    finally:
        os.close(descriptor)


def _open(directory: str | int, name: str, flags: int) -> int:
    try:
        if isinstance(directory, str):
            return os.open(os.path.join(directory, name), flags | os.O_CLOEXEC)
        return os.open(name, flags | os.O_CLOEXEC, dir_fd=directory)
    except OSError as error:
        raise OSError(error.errno, f"open {name}: {os.strerror(error.errno or 0)}") from None

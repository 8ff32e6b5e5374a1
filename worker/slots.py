"""The worker's side of the launcher: slots that commands run in, one at a time each.

Nothing here waits: a job sent to a slot that is still being made lies in its socket until the child is there.
"""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

_MAX_IDLE = 32
_MAX_MESSAGE = 64 * 1024
_START_TIMEOUT_S = 20.0
_ROOT = str(pathlib.Path(__file__).resolve().parent.parent)
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); import json; from worker.launcher import main; "
    "main(int(sys.argv[2]), json.loads(sys.argv[3]))"
)


class LauncherFailed(Exception):
    """The launcher, or what it was to start, failed: the message names the call.

    `started` says that the command may have run.
    """

    def __init__(self, message: str, *, started: bool = False) -> None:
        super().__init__(message)
        self.started = started


@dataclass(slots=True, kw_only=True)
class Launch:
    """A command and the wall around it. Paths are the operator's or were checked; none is resolved beyond them.

    `cwd_fd` and `workspace_fd` stand for `cwd` and `workspace` wherever the tier can use descriptors.
    """

    script: bytes
    workspace: str
    workspace_fd: int
    cwd: str
    cwd_fd: int
    env: dict[str, str]
    limits: dict[str, float]
    """cpu_s, memory_bytes, processes, file_bytes, open_files, tmp_bytes."""
    writable: bool = True
    read_only: tuple[str, ...] = ()
    drain_s: float = 0.2


class Slot:
    """One runner. `control` becomes readable when it has something to say."""

    def __init__(self, jobs: socket.socket, control: socket.socket) -> None:
        self.jobs = jobs
        self.control = control
        self._number = 0

    def start(self, launch: Launch, stdout: int, stderr: int) -> None:
        """Send the command on its way.

        Raises:
            LauncherFailed: the runner is gone.
        """
        self._number += 1
        header = json.dumps(
            {
                "workspace": launch.workspace,
                "cwd": launch.cwd,
                "env": launch.env,
                "limits": launch.limits,
                "writable": launch.writable,
                "read_only": launch.read_only,
            }
        ).encode()
        watched = {name: launch.limits[name] for name in ("cpu_s", "memory_bytes", "processes")}
        script = os.memfd_create("command")
        try:
            os.write(script, launch.script)
            # In this order: when the command ends at once, the runner already knows that there was one.
            self._tell(op="watch", drain_s=launch.drain_s, **watched)
            descriptors = [stdout, stderr, script, launch.cwd_fd, launch.workspace_fd]
            socket.send_fds(self.jobs, [header], descriptors)
        except OSError as error:
            raise LauncherFailed(f"the launcher's runner is gone: {error.strerror}") from error
        finally:
            os.close(script)

    def kill(self) -> None:
        """End the command and all it started, now. The report follows."""
        try:
            self._tell(op="kill")
        except OSError:
            pass  # gone already, and its tree with it

    def _tell(self, **message: Any) -> None:
        self.control.send(json.dumps({"job": self._number, **message}).encode())

    def hear(self) -> dict[str, Any] | None:
        """The runner's next report on the present job, or None when there is none yet.

        Raises:
            LauncherFailed: the runner is gone, or the command could not be started; the message names the call.
        """
        try:
            data = self.control.recv(_MAX_MESSAGE)
        except BlockingIOError:
            return None
        except OSError as error:
            raise LauncherFailed(f"the launcher's runner is gone: {error.strerror}", started=True) from error
        if not data:
            raise LauncherFailed("the launcher's runner is gone", started=True)
        report: dict[str, Any] = json.loads(data)
        return report if report["job"] == self._number else None

    def is_alive(self) -> bool:
        """Whether the runner is there, as far as can be told."""
        try:
            return bool(self.control.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def setup_failure(self) -> str | None:
        """What the child said when it could not become the command."""
        try:
            data = self.jobs.recv(_MAX_MESSAGE)
        except OSError:
            return None
        return str(json.loads(data)["failed"]) if data else None

    def close(self) -> None:
        """Give the slot up: whatever runs in it is ended."""
        self.control.close()
        self.jobs.close()


class Slots:
    """The launcher of one tier, and the slots it has made. Started when it is made.

    Raises:
        LauncherFailed: the launcher does not start; the message names the call.
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = plan
        self._idle: list[Slot] = []
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._begin()

    def _begin(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-I", "-S", "-B", "-c", _PROGRAM, _ROOT, str(theirs.fileno())]
        self._process = subprocess.Popen(
            [*command, json.dumps(self._plan)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            cwd="/",
            env={"LANG": "C.UTF-8"},
        )
        theirs.close()
        ours.settimeout(_START_TIMEOUT_S)
        try:
            answer = ours.recv(4096).decode()
        except OSError as error:
            answer = f"no answer ({error})"
        if answer != "ready":
            ours.close()
            self._process.kill()
            self._process.wait()
            self._process = None
            raise LauncherFailed(f"the launcher does not start: {answer or 'it died'}")
        self._socket = ours

    def take(self) -> Slot:
        """A slot that runs nothing, made if need be.

        Raises:
            LauncherFailed: the launcher is gone and does not start again.
        """
        while self._idle:
            slot = self._idle.pop()
            if slot.is_alive():
                return slot
            slot.close()
        try:
            return self._make()
        except OSError:
            self.close()
            self._begin()
            return self._make()

    def _make(self) -> Slot:
        if self._socket is None:
            raise LauncherFailed("the launcher was closed")
        jobs, their_jobs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control, their_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            socket.send_fds(self._socket, [b"slot"], [their_jobs.fileno(), their_control.fileno()])
        except OSError:
            jobs.close()
            control.close()
            raise
        finally:
            their_jobs.close()
            their_control.close()
        jobs.setblocking(False)
        control.setblocking(False)
        return Slot(jobs, control)

    def give_back(self, slot: Slot) -> None:
        """A slot whose job has ended, for the next."""
        if len(self._idle) < _MAX_IDLE and self._socket is not None:
            self._idle.append(slot)
        else:
            slot.close()

    def warm(self, count: int) -> None:
        """Have so many slots ready."""
        made = [self._make() for _ in range(count - len(self._idle))]
        self._idle.extend(made)

    def close(self) -> None:
        """End the launcher and everything that runs under it."""
        for slot in self._idle:
            slot.close()
        self._idle.clear()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            self._process.wait()
            self._process = None

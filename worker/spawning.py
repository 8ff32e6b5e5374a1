"""A command's process where no cgroup awaits it: spawned by the runner, not forked.

A fork of an interpreter and its way to exec cost 2 ms of copied page tables and page faults; posix_spawn shares the
memory until the exec, and costs none of them. But then there is nobody to wall himself in between the two. So a
thread of the runner does: the command inherits Landlock's domain from it, and from the runner itself, which needs
them as little, the filter and the lack of capabilities. And the command waits: bash reads what `BASH_ENV` names
before anything else, a pipe here, until the thread has ended (whoever shares its domain may signal it:
`wait_until_alone`) and the limits are set. bwrap has an option for that.

Imports nothing but the standard library and its neighbours, which do the same.
"""

from __future__ import annotations

import _thread
import ctypes
import json
import os
import time
from collections.abc import Callable
from typing import Any

from worker import jail, landlock

_CLOSE_RANGE = 436
_CLOSE_RANGE_CLOEXEC = 4
_ALL_DESCRIPTORS = 2**32 - 1
_RULESET_LIVES_S = 5.0
_MAX_RULESETS = 4
_LOOK_AGAIN_S = 0.00005

_libc = ctypes.CDLL(None, use_errno=True)


def wait_until_alone() -> None:
    """Until no thread of this process is left but the caller's."""
    while len(os.listdir("/proc/self/task")) > 1:
        time.sleep(_LOOK_AGAIN_S)


class Spawner:
    """Spawns commands, one at a time."""

    def __init__(self, prepared: jail.Prepared) -> None:
        self._prepared = prepared
        self._rulesets: dict[tuple[Any, ...], tuple[float, int]] = {}

    def spawn(self, header: bytes, descriptors: list[int]) -> jail.Started:
        """The process for a job, which comes as `worker.slots.Slot.start` sends it. The descriptors are closed.

        Raises:
            OSError, ValueError: the process can't be made; the message names the call.
        """
        prepared = self._prepared
        job: dict[str, Any] = json.loads(header)
        stdout, stderr, script, cwd, workspace = descriptors
        status, status_end = os.pipe()
        block_end, block = os.pipe()
        theirs = [*descriptors, status_end, block_end]
        try:
            # Everything is close-on-exec already; one descriptor forgotten would be a way out, so it is made sure of.
            _libc.syscall(ctypes.c_long(_CLOSE_RANGE), 3, ctypes.c_uint(_ALL_DESCRIPTORS), _CLOSE_RANGE_CLOEXEC)
            argv, passed, opening = self._command(job, script, status_end, block_end)
            theirs += passed
            actions = [
                (os.POSIX_SPAWN_DUP2, stdout, 1),
                (os.POSIX_SPAWN_DUP2, stderr, 2),
                *((os.POSIX_SPAWN_DUP2, number, number) for number in passed),
            ]

            def make() -> int:
                return os.posix_spawn(
                    prepared.bwrap or prepared.bash,
                    argv,
                    job["env"],
                    file_actions=actions,
                    setsid=True,
                    setsigmask=(),
                    setsigdef=jail.SIGNALS_TO_RESET,
                )

            if prepared.tier != "bwrap":
                os.fchdir(cwd)
            pid = self._behind_wall(make, job, workspace) if prepared.tier == "landlock" else make()
        except BaseException:
            os.close(status)
            os.close(block)
            raise
        finally:
            os.chdir("/")
            for number in set(theirs):
                os.close(number)
        return jail.Started(pid, status, block, opening, job["limits"])

    def _command(self, job: dict[str, Any], script: int, status: int, block: int) -> tuple[list[str], list[int], bytes]:
        # Its arguments, the descriptors that it gets by their numbers, and what lets it go.
        prepared = self._prepared
        argv = jail.bash_arguments(script)
        passed = [script] if os.get_inheritable(script) else []
        if prepared.tier == "bwrap":
            of_wall = [jail.filter_descriptor(prepared), status, block]
            return [*jail.bwrap_arguments(job, prepared, of_wall), *argv], [*passed, *of_wall], b""
        job["env"]["BASH_ENV"] = f"/proc/self/fd/{block}"
        # Afterwards $_ is what it is where nothing was run before.
        return argv, [*passed, block], f"exec {block}<&-; unset BASH_ENV; : {argv[0]}\n".encode()

    def _behind_wall(self, make: Callable[[], int], job: dict[str, Any], workspace: int) -> int:
        ruleset = self._ruleset(job, workspace)
        made: list[int] = []
        failed: list[BaseException] = []
        done = _thread.allocate_lock()
        done.acquire()

        def work() -> None:
            try:
                landlock.enter(ruleset)
                made.append(make())
            except BaseException as error:  # noqa: BLE001 - raised again where it can be reported
                failed.append(error)
            finally:
                done.release()

        _thread.start_new_thread(work, ())
        done.acquire()
        if failed:
            raise failed[0]
        return made[0]

    def _ruleset(self, job: dict[str, Any], workspace: int) -> int:
        # To make one costs more than to enter it, and the next command is mostly for the same workspace. A rule
        # holds on to its directory, not to what is mounted or made under that name later: so none gets old.
        found = os.fstat(workspace)
        key = (found.st_dev, found.st_ino, job["writable"], *job["read_only"])
        now = time.monotonic()
        if key in self._rulesets and self._rulesets[key][0] < now:
            os.close(self._rulesets.pop(key)[1])
        if key not in self._rulesets:
            while len(self._rulesets) >= _MAX_RULESETS:
                os.close(self._rulesets.pop(next(iter(self._rulesets)))[1])
            ruleset = jail.ruleset_of_system(self._prepared)
            try:
                jail.grant_to_job(ruleset, self._prepared, job, workspace)
            except BaseException:
                os.close(ruleset)
                raise
            self._rulesets[key] = (now + _RULESET_LIVES_S, ruleset)
        return self._rulesets[key][1]

"""The processes that start commands. Run by `python -I -S`, with an empty environment, beside the worker.

    worker ── zygote ── runner (one a slot, a subreaper) ── bash or bwrap

The zygote forks runners. A runner (`worker.runner`) spawns one command after the other (`worker.spawning`) or, where
commands get cgroups, forks a child into one while it has nothing to do (`worker.forking`). So a command costs no fork
of the worker, whatever memory that holds, and no interpreter start. What a command leaves behind comes to its runner,
which is a subreaper, and to the zygote should the runner die.

Imports nothing but the standard library and its neighbours, which do the same.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
from typing import Any, NoReturn

from worker import cgroups, jail, proctree, runner

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_DUMPABLE = 4

_libc = ctypes.CDLL(None, use_errno=True)


def main(descriptor: int, plan: dict[str, Any]) -> NoReturn:
    """The zygote: forks a runner for each pair of sockets that it is sent, until its own socket closes.

    Says `ready`, or why it can't, as its first message.
    """
    os.set_inheritable(descriptor, False)
    worker = socket.socket(fileno=descriptor)
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    # A signal meant for the service reaches all of its processes: the worker decides what becomes of its commands.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    try:
        prepared = jail.prepare(plan)
    except (OSError, ValueError) as error:
        worker.send(str(error).encode())
        os._exit(1)
    gc.disable()
    gc.freeze()
    worker.send(b"ready")
    _serve(worker, prepared)


def _serve(worker: socket.socket, prepared: jail.Prepared) -> NoReturn:
    runners: dict[int, int] = {}
    poll = select.poll()
    poll.register(worker, select.POLLIN)
    open_for_more = True
    while open_for_more or runners:
        ready = [found for found, _ in poll.poll()]
        for pid, descriptor in list(runners.items()):
            if descriptor in ready:
                poll.unregister(descriptor)
                os.close(runners.pop(pid))
                _end_orphans(set(runners))
                if prepared.delegated:
                    cgroups.sweep(prepared.delegated.path)
        if not open_for_more or worker.fileno() not in ready:
            continue
        message, descriptors = jail.receive(worker)
        if not message:
            # The worker is gone: its runners see their own sockets close, end their commands and follow.
            poll.unregister(worker)
            open_for_more = False
            continue
        try:
            pid = os.fork()
        except OSError:
            # Too many processes: the worker sees its ends close, and says so of this one call.
            for number in descriptors:
                os.close(number)
            continue
        if pid == 0:
            worker.close()
            for descriptor in runners.values():
                os.close(descriptor)
            jobs, control = (socket.socket(fileno=number) for number in descriptors)
            runner.run(jobs, control, prepared)
        runners[pid] = os.pidfd_open(pid)
        poll.register(runners[pid], select.POLLIN)
        for number in descriptors:
            os.close(number)
    if prepared.etc:
        shutil.rmtree(prepared.etc, ignore_errors=True)
    os._exit(0)


def _end_orphans(runners: set[int]) -> None:
    # Collects dead runners, and ends what came up from them.
    while True:
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                return
        strangers = [pid for pid in proctree.children(os.getpid()) if pid not in runners]
        if not strangers:
            return
        for pid in strangers:
            os.kill(pid, signal.SIGKILL)
        signal.sigtimedwait([signal.SIGCHLD], 0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))

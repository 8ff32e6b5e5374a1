"""run_command: bash gets the exact bytes, in the workspace, behind the sandbox; the answer always comes."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from dataclasses import dataclass

from contracts.replies import EffectState
from contracts.tools import RunCommandArgs, RunCommandOutput
from worker.bubblewrap import SYSTEM_PATH
from worker.failures import CallFailed
from worker.process import Command, Ran, Run
from worker.secrets.placeholders import NotGiven
from worker.slots import LauncherFailed
from worker.tools.context import ToolContext
from worker.tools.offload import FILES
from worker.tools.spilled import Spill
from worker.workspace import InvalidPath, Outside, Scratch, Workspace

_REMOVAL_PATIENCE_S = 1.0
_HINT_OF_LIMIT = {
    "wall": "give it a longer timeout_s if that is allowed, or do less at once",
    "output": "write the output to a file and read parts of it",
    "workspace": "remove something: commands run even now, as long as they do not make it more",
}

_ENVIRONMENT = {
    "PATH": SYSTEM_PATH,
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "SHELL": "/bin/bash",
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "LESS": "-FRX",
    "EDITOR": "true",
    "VISUAL": "true",
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "NPM_CONFIG_FUND": "false",
    "NPM_CONFIG_UPDATE_NOTIFIER": "false",
    "PYTHONUNBUFFERED": "1",
}


async def run(args: RunCommandArgs, context: ToolContext) -> RunCommandOutput:
    """The command's output and exit code; a code other than 0 is an answer, not a failure.

    When the task is cancelled, the tree is ended first and what there is of the output is left in
    `context.partial_output`.

    Raises:
        CallFailed: invalid_call, not_found, wrong_kind or forbidden for the command or its cwd; timeout, with the
            output so far; unavailable when it can't be started.
        CancelledError: as it came.
    """
    script, secrets = _script(args, context)
    place, spill = _enter(context.workspace, args.cwd), Spill(context)
    scratch = _make_scratch(context)
    try:
        running = Run(
            Command(
                script=script,
                workspace=context.workspace.root,
                workspace_fd=place.workspace_fd,
                cwd=place.cwd,
                cwd_fd=place.cwd_fd,
                env={**_environment(context, place.cwd, scratch), **secrets},
                usage=context.workspace.usage,
                writable=context.writable,
                timeout_s=_timeout_s(args, context),
            ),
            context.limits,
            context.sandbox,
            spill=spill.create,
            progress=context.progress,
        )
        try:
            ran = await running.finish()
            await spill.redact()
        except LauncherFailed as error:
            effect: EffectState = "unknown" if error.started else "none"
            raise CallFailed("unavailable", f"the command could not be started: {error}", effect=effect) from error
        finally:
            if running.ran.cancelled:
                context.partial_output = _answer(running.ran)
    finally:
        place.close()
        spill.close()
        if scratch is not None and not context.workspace.keep_scratch(scratch):
            await _remove(scratch)
    answer = _answer(ran)
    if ran.timed_out:
        raise CallFailed(
            "timeout",
            f"the command was ended after {ran.duration_s:.3g} s",
            hint=_HINT_OF_LIMIT["wall"],
            output=answer,
        )
    return answer


def _script(args: RunCommandArgs, context: ToolContext) -> tuple[str, dict[str, str]]:
    """What bash gets, and the secrets in its environment."""
    if args.background:
        raise CallFailed("invalid_call", "background is not offered yet: run it and wait for its end")
    if "\0" in args.command:
        raise CallFailed("invalid_call", "the command has a NUL character, which no shell can take")
    try:
        return context.secrets.resolve("run_command", args.command)
    except NotGiven as error:
        raise CallFailed("forbidden", str(error)) from None


@dataclass(slots=True)
class _Place:
    workspace_fd: int
    cwd_fd: int
    cwd: str

    def close(self) -> None:
        os.close(self.workspace_fd)
        os.close(self.cwd_fd)


def _enter(workspace: Workspace, cwd: str | None) -> _Place:
    """Descriptors of the workspace and of the directory to run in, opened beneath it."""
    root = _open_directory(workspace, ".", "the workspace")
    try:
        if os.fstat(root).st_nlink == 0 or not os.path.isdir(workspace.root):
            raise CallFailed(
                "not_found", "the workspace no longer exists", hint="ask for the session to be set up anew"
            )
        if cwd is None:
            return _Place(root, os.dup(root), workspace.root)
        directory = _open_directory(workspace, cwd, f"cwd {cwd!r}")
    except BaseException:
        os.close(root)
        raise
    # Where it really is, so that no link on the way is followed a second time.
    return _Place(root, directory, os.readlink(f"/proc/self/fd/{directory}"))


def _open_directory(workspace: Workspace, path: str, what: str) -> int:
    try:
        with workspace.open_directory(workspace.locate(path)) as opened:
            return os.dup(opened.fd)
    except InvalidPath as error:
        raise CallFailed("invalid_call", f"{what}: {error}") from error
    except Outside as error:
        raise CallFailed("forbidden", f"{what} is outside the workspace") from error
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise CallFailed("not_found", f"{what} does not exist", effect="none") from error
        if error.errno == errno.ENOTDIR:
            raise CallFailed("wrong_kind", f"{what} is not a directory", effect="none") from error
        raise


def _environment(context: ToolContext, cwd: str, scratch: Scratch | None) -> dict[str, str]:
    root = context.workspace.root
    tmp = os.path.join(root, os.fsdecode(scratch.path)) if scratch else "/tmp" if _has_tmp(context) else root  # noqa: S108
    return {**_ENVIRONMENT, "HOME": root, "PWD": cwd, "TMPDIR": tmp, "USER": "agent", "LOGNAME": "agent"}


def _has_tmp(context: ToolContext) -> bool:
    return context.sandbox.tier.startswith("bwrap")


def _make_scratch(context: ToolContext) -> Scratch | None:
    # Where there is no private /tmp, temporary files go beneath the workspace.
    if _has_tmp(context) or not context.writable:
        return None
    try:
        return context.workspace.make_scratch()
    except (OSError, Outside):
        return None


async def _remove(scratch: Scratch) -> None:
    # A command may leave very much there: its answer waits for a moment, what is left goes while others run.
    removing = asyncio.get_running_loop().run_in_executor(FILES, scratch.remove)
    await asyncio.wait({removing}, timeout=_REMOVAL_PATIENCE_S)


def _timeout_s(args: RunCommandArgs, context: ToolContext) -> float | None:
    left = None if context.deadline is None else max(0.0, context.deadline - time.monotonic())
    wanted = [seconds for seconds in (args.timeout_s, left) if seconds is not None]
    return min(wanted, default=None)


def _answer(ran: Ran) -> RunCommandOutput:
    streams = {"stdout": ran.stdout, "stderr": ran.stderr}
    omitted = {name: end.omitted_bytes for name, end in streams.items() if end.omitted_bytes}
    notes = []
    if ran.killed:
        notes.append(f"ended processes that outlived the shell: {', '.join(ran.killed)}")
    for name, end in streams.items():
        if end.spill and end.spill_cut:
            notes.append(f"{end.spill} has the beginning of {name} only")
        elif end.spill:
            notes.append(f"{end.spill} has the whole of {name}")
    if "memory" in ran.limits_hit and ran.peak_bytes:
        notes.append(f"it was seen to use {ran.peak_bytes} bytes of memory")
    if ran.held_bytes:
        notes.append(f"the workspace held {ran.held_bytes} bytes, which is more than it may")
    hints = [f"limit {limit}: {_HINT_OF_LIMIT[limit]}" for limit in ran.limits_hit if limit in _HINT_OF_LIMIT]
    return RunCommandOutput(
        stdout=ran.stdout.text,
        stderr=ran.stderr.text,
        exit_code=ran.exit_code,
        signal=ran.signal,
        timed_out=ran.timed_out,
        duration_ms=round(ran.duration_s * 1000),
        limits_hit=ran.limits_hit,
        omitted_bytes=omitted or None,
        spill=ran.stdout.spill or ran.stderr.spill,
        truncated=bool(omitted),
        notes=[*notes, *hints],
    )

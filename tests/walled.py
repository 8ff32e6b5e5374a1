"""Commands run as the executor runs them, behind each wall that this host offers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
import uvloop

from contracts.calls import Session
from contracts.replies import ErrorCode
from contracts.tools import RunCommandArgs, RunCommandOutput
from worker.failures import CallFailed
from worker.process import Limits
from worker.sandbox import TIERS, Sandbox, SandboxUnavailable, Tier, detect
from worker.tools.context import OnProgress, ToolContext
from worker.tools.run_command import run
from worker.workspace import Workspace

Wall = Literal["bwrap", "landlock", "none"]
WALLS: tuple[Wall, ...] = (*TIERS, "none")


def open_wall(wall: Wall, **options: Any) -> Sandbox:
    """The sandbox of one tier, as workers have it; the test is skipped where the host does not offer it."""
    if wall == "none":
        return detect("off", divide_cgroup=True, **options)
    tier: Tier = wall
    try:
        return detect("require", tiers=(tier,), divide_cgroup=True, **options)
    except SandboxUnavailable as error:
        pytest.skip(str(error))


@contextmanager
def walled(wall: Wall, root: Path, **limits: Any) -> Iterator[Commands]:
    """One sandbox and one workspace."""
    sandbox = open_wall(wall)
    try:
        with Workspace.open(str(root)) as workspace:
            yield Commands(workspace, sandbox, Limits(**limits))
    finally:
        sandbox.close()


class Commands:
    """run_command on one workspace. Every answer must be valid JSON."""

    def __init__(self, workspace: Workspace, sandbox: Sandbox, limits: Limits) -> None:
        self.workspace = workspace
        self.sandbox = sandbox
        self.limits = limits
        self.root = Path(workspace.root)

    def context(self, **fields: Any) -> ToolContext:
        """As the executor makes one."""
        return ToolContext(
            workspace=self.workspace,
            sandbox=self.sandbox,
            limits=fields.pop("limits", self.limits),
            session=Session(name="s1", workspace="w"),
            call=f"c{time.monotonic_ns()}",
            **fields,
        )

    async def start(self, command: str, *, context: ToolContext | None = None, **args: Any) -> RunCommandOutput:
        """The answer, as it would travel."""
        wanted = msgspec.convert({"command": command, **args}, RunCommandArgs)
        output = await run(wanted, context or self.context())
        return msgspec.json.decode(msgspec.json.encode(output), type=RunCommandOutput)

    def run(
        self, command: str, *, progress: OnProgress | None = None, limits: Limits | None = None, **args: Any
    ) -> RunCommandOutput:
        """The answer of a command that completes, on a new event loop."""
        context = self.context(progress=progress, limits=limits or self.limits)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(self.start(command, context=context, **args))

    def fail(self, command: str, code: ErrorCode, **args: Any) -> CallFailed:
        """The failure of a command that does not complete."""
        with pytest.raises(CallFailed) as caught:
            self.run(command, **args)
        assert caught.value.code == code
        return caught.value


def alive(marker: str) -> list[int]:
    """Pids of processes whose command line has the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in words:
                found.append(int(entry.name))
    return found

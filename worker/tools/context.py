"""What a tool gets besides its arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

from msgspec import Struct, field

from contracts.calls import Session
from contracts.tools import Output
from worker.audit import FileChange
from worker.process import Limits
from worker.sandbox import Sandbox
from worker.secrets import Redactor
from worker.secrets.placeholders import SecretStore
from worker.workspace import Workspace

OnProgress = Callable[[Literal["stdout", "stderr"], str, int], Awaitable[None]]
"""(stream, text, dropped_bytes): hands a piece of output to the reply stream, classified on its way."""


class ToolContext(Struct, kw_only=True):
    """Handed to `async def run(args, context) -> Output`; lives as long as the call.

    `deadline` is on the clock of time.monotonic(), or None. The executor enforces it and cancellation by cancelling
    the tool's task; a tool that must keep its partial output catches CancelledError, or ends by `deadline` itself.
    """

    workspace: Workspace
    sandbox: Sandbox
    limits: Limits
    session: Session
    call: str
    deadline: float | None = None
    progress: OnProgress | None = None
    secrets: SecretStore = field(default_factory=SecretStore)
    """What `{{secret:name}}` in a command stands for."""
    redactor: Redactor | None = None
    """Takes secrets out of what the tool leaves in files."""
    writable: bool = True
    """False runs commands with the workspace read-only."""
    opened: list[str] = field(default_factory=list)
    """Canonical paths, relative to the workspace, of what the tool really opened: they decide the reply's level."""
    changed: list[FileChange] = field(default_factory=list)
    """Files that the tool replaced, for the audit log."""
    partial_output: Output | None = None
    """What a cancelled tool leaves of its output, for the reply."""

"""What every call of a worker process is carried out with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from contracts.calls import JobId
from contracts.tools import Output
from worker.audit import AuditLog
from worker.broker import Broker
from worker.hooks.plugins import PluginHooks
from worker.hooks.post_tool_response import PostToolResponse
from worker.hooks.pre_tool_call import Policy, PreToolCall
from worker.metrics import Metrics
from worker.policies.rules.book import Rules
from worker.process import Limits
from worker.sandbox import Sandbox
from worker.secrets.placeholders import SecretStore
from worker.tools.context import ToolContext
from worker.workspace import Workspace

RunTool = Callable[[Any, ToolContext], Awaitable[Output]]


@dataclass(slots=True, frozen=True, kw_only=True)
class Parts:
    """Built once, in `worker.app`. `rules` are the operator's, `hooks` other packages'; None where there are none."""

    tools: Mapping[str, RunTool]
    gate: PreToolCall
    plan_gate: Policy
    classify: PostToolResponse
    broker: Broker
    audit: AuditLog
    sandbox: Sandbox
    limits: Limits
    metrics: Metrics
    open_workspace: Callable[[JobId, str], Workspace]
    tool_timeout_s: float
    secrets: SecretStore
    rules: Rules | None = None
    hooks: PluginHooks | None = None

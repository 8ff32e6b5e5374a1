"""The composition root: settings -> parts -> arq worker."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import os
import signal
from typing import Any

from arq.connections import ArqRedis
from arq.worker import Function, func

from contracts import codec
from contracts.calls import JobId, check_name
from worker.audit import AuditLog
from worker.broker import UNREACHABLE, Broker
from worker.executor import execute
from worker.failures import CallFailed
from worker.hooks.plugins import PluginHooks, installed
from worker.hooks.post_tool_response import PostToolResponse
from worker.hooks.pre_tool_call import Policy, PreToolCall
from worker.labels import PathRule, read_path_rules
from worker.metrics import Metrics
from worker.parts import Parts
from worker.policies import plan_gate, secret_use
from worker.policies.rules.book import Rules
from worker.policies.rules.load import PolicyError, load_policy
from worker.policies.rules.schema import limits_for_scripts
from worker.probes import forbid_looking_in
from worker.process import Limits
from worker.queue import FleetWorker
from worker.registry import POLICIES, TOOLS
from worker.sandbox import Sandbox, detect
from worker.secrets.logs import redact_logs
from worker.secrets.placeholders import SecretStore
from worker.settings import (
    Settings,
    SettingsError,
    denied_commands,
    environment_of_hooks,
    policy_files,
    read_only_dirs,
)
from worker.vault import open_audit, redactor_of, secret_store
from worker.version import version_of_product
from worker.workspace import KeptWorkspaces, Workspace

log = logging.getLogger("toolreef")


def run_worker(settings: Settings, redis_url: str, queues: list[str]) -> None:
    """Serves the queues until a signal has drained the worker. Uses uvloop where it is installed.

    Raises:
        SandboxUnavailable: commands can't be walled in, and the settings require it.
    """
    forbid_looking_in()
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        build_worker(settings, redis_url, queues).run()
    finally:
        loop.close()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def build_worker(settings: Settings, redis_url: str, queues: list[str]) -> FleetWorker:
    """A worker ready to run on the current event loop."""
    broker = Broker.connect(settings, redis_url)
    metrics = Metrics()
    sandbox = detect(settings.sandbox, read_only=read_only_dirs(settings), divide_cgroup=True)
    rules = load_rules(settings)
    hooks = find_hooks(settings)
    described = describe(settings, queues, sandbox)
    redactor, secrets = redactor_of(settings, redis_url), secret_store(settings)
    redact_logs(redactor)
    policies = policies_of(settings, sandbox, rules, secrets)
    parts = Parts(
        tools=TOOLS,
        gate=PreToolCall(policies, settings.policy_timeout_s, hooks),
        plan_gate=policies["plan_gate"],
        classify=PostToolResponse(path_rules(settings), redactor),
        secrets=secrets,
        broker=broker,
        audit=open_audit(settings, settings.worker),
        sandbox=sandbox,
        limits=limits_of(settings),
        metrics=metrics,
        open_workspace=Workspaces(settings).open,
        tool_timeout_s=settings.tool_timeout_s,
        rules=rules,
        hooks=hooks,
    )
    pool: Any = broker.redis.connection_pool
    return FleetWorker(
        [_as_function(name) for name in TOOLS],
        queues=queues,
        broker=broker,
        execute=functools.partial(execute, parts=parts),
        concurrency=settings.concurrency,
        lease_s=settings.lease_s,
        drain_s=settings.drain_s,
        metrics=metrics,
        describe=described,
        on_startup=functools.partial(_start, rules, hooks, broker, settings, described),
        on_shutdown=functools.partial(_close, parts.audit, sandbox, hooks),
        redis_pool=ArqRedis(pool, job_serializer=codec.encode, job_deserializer=json.loads),
        job_serializer=codec.encode,
        job_deserializer=json.loads,
    )


def policies_of(settings: Settings, sandbox: Sandbox, rules: Rules | None, secrets: SecretStore) -> dict[str, Policy]:
    """What judges calls: the registry's policies, set as the settings say, and the operator's rules."""
    # Where there is no wall, nothing keeps a command from writing.
    read_only_commands = settings.plan_commands == "read_only" and sandbox.tier != "none"
    judge_plan = functools.partial(plan_gate.judge, read_only_commands=read_only_commands)
    judge_secrets = functools.partial(secret_use.judge, store=secrets)
    mine: dict[str, Policy] = {"plan_gate": judge_plan, "secret_use": judge_secrets}
    return {**POLICIES, **mine, **({} if rules is None else {"rules": rules.judge})}


def limits_of(settings: Settings) -> Limits:
    """What one command may use."""
    return Limits(
        wall_s=settings.command_timeout_s,
        cpu_s=settings.command_cpu_s,
        memory_bytes=settings.command_memory_bytes,
        processes=settings.command_processes,
        file_bytes=settings.command_file_bytes,
        output_bytes=settings.command_output_bytes,
        workspace_bytes=settings.workspace_bytes,
    )


def describe(settings: Settings, queues: list[str], sandbox: Sandbox) -> dict[str, Any]:
    """What stays the same in this worker's heartbeats."""
    return {
        "worker": settings.worker,
        "pid": os.getpid(),
        "queues": queues,
        "version": version_of_product(),
        "sandbox": sandbox.tier,
        "limits": sandbox.limits,
        "tools": sorted(TOOLS),
    }


def load_rules(settings: Settings) -> Rules | None:
    """The operator's rules of the settings' policy files, None where there are none.

    Raises:
        PolicyError: they can't be used.
    """
    files, commands = policy_files(settings), denied_commands(settings)
    return Rules(load_policy(files, commands)) if files or commands else None


def find_hooks(settings: Settings) -> PluginHooks | None:
    """The hooks that installed packages offer, None where there are none.

    Raises:
        SettingsError: one that the settings name is not installed.
    """
    names = installed()
    wanted = {name.strip() for name in settings.hooks.split(",") if name.strip()}
    if missing := wanted - {name for group in names.values() for name in group}:
        raise SettingsError(f"TOOLREEF_HOOKS: no installed package offers {', '.join(sorted(missing))}")
    if not any(names.values()):
        return None
    return PluginHooks(
        names,
        timeout_s=settings.hook_timeout_s,
        processes=settings.hook_processes,
        memory_bytes=settings.hook_memory_mb * 1024 * 1024,
        environment=environment_of_hooks(),
    )


async def _start(
    rules: Rules | None,
    hooks: PluginHooks | None,
    broker: Broker,
    settings: Settings,
    described: dict[str, Any],
    _: Any,
) -> None:
    if hooks is not None:
        await hooks.start()
        described["hooks"] = sorted({name for group in hooks.names.values() for name in group})
    reload = functools.partial(_reload, rules, broker, settings, described)
    if rules is not None:
        described["policy_version"] = rules.book.version
        broker.limits = limits_for_scripts(rules.book.limits)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)


def _reload(rules: Rules | None, broker: Broker, settings: Settings, described: dict[str, Any]) -> None:
    """SIGHUP: takes the policy's files as they are now, all of them or none."""
    if rules is None:
        log.warning("SIGHUP: this worker was started without a policy, so there is none to reload")
        return
    try:
        book = load_policy(policy_files(settings), denied_commands(settings))
    except PolicyError as error:
        log.error("SIGHUP: the policy stays at version %s, the new one can't be used: %s", rules.book.version, error)
        return
    rules.book = book
    broker.limits = limits_for_scripts(book.limits)
    described["policy_version"] = book.version
    log.info("SIGHUP: policy version %s is in force, %d rules", book.version, len(book.rules))
    task = asyncio.get_running_loop().create_task(_claim_anew(broker, described["queues"]))
    _CLAIMING_ANEW.add(task)
    task.add_done_callback(_CLAIMING_ANEW.discard)


_CLAIMING_ANEW: set[asyncio.Task[None]] = set()


async def _claim_anew(broker: Broker, queues: list[str]) -> None:
    """A claim that waits at Redis carries the limits that were in force when it was sent."""
    with contextlib.suppress(*UNREACHABLE):
        for queue in queues:
            await broker.wake(queue)


class Workspaces:
    """The workspaces of a settings' directory: `<workspaces>/<queue>/<name>`, made if missing, kept open."""

    def __init__(self, settings: Settings) -> None:
        self._base = str(settings.workspaces)
        self._kept = KeptWorkspaces(_sweep)

    def open(self, job: JobId, name: str) -> Workspace:
        """The workspace called `name` of the job's queue.

        Raises:
            CallFailed: the session's record names a workspace that can't be a directory's name.
            OSError: it can't be made or opened.
        """
        try:
            check_name("workspace", name)
        except ValueError as error:
            raise CallFailed("unavailable", str(error), hint="the orchestrator must set another workspace") from None
        return self._kept.open(f"{self._base}/{job.queue}/{name}")


async def _close(audit: AuditLog, sandbox: Sandbox, hooks: PluginHooks | None, _: dict[Any, Any]) -> None:
    if hooks is not None:
        await hooks.close()
    audit.close()
    sandbox.close()


def _sweep(workspace: Workspace) -> None:
    """Removes what writers that were killed have left behind, on a thread, while calls go on."""
    asyncio.get_running_loop().run_in_executor(None, workspace.sweep)


def _as_function(name: str) -> Function:
    """arq's view of a tool. arq never calls it: claims go to the executor, which can answer what arq can't."""

    async def refuse(ctx: dict[Any, Any], *_: Any, **__: Any) -> None:
        raise RuntimeError(f"{name} runs through the executor only")

    return func(refuse, name=name)


def path_rules(settings: Settings) -> tuple[PathRule, ...]:
    """The configured path rules.

    Raises:
        SettingsError: a rule can't be read.
    """
    try:
        return read_path_rules(settings.levels)
    except ValueError as error:
        raise SettingsError(f"TOOLREEF_LEVELS: {error}") from None

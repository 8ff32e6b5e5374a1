"""The composition root: settings -> parts -> arq worker."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from arq.connections import ArqRedis
from arq.worker import Function, func
from redis.asyncio import Redis

from contracts import codec
from contracts.calls import JobId, check_name
from worker.audit import AuditLog
from worker.broker import Broker
from worker.executor import Parts, execute
from worker.failures import CallFailed
from worker.hooks.post_tool_response import PostToolResponse
from worker.hooks.pre_tool_call import PreToolCall
from worker.labels import read_rules
from worker.metrics import Metrics
from worker.process import Limits
from worker.queue import BELL_TIMEOUT_S, FleetWorker
from worker.registry import POLICIES, TOOLS
from worker.sandbox import Sandbox, detect
from worker.secrets import Redactor
from worker.settings import Settings
from worker.workspace import Workspace

log = logging.getLogger("toolreef")


def version_of_product() -> str:
    """The installed version; "0" from a bare checkout."""
    try:
        return version("toolreef")
    except PackageNotFoundError:
        return "0"


def run_worker(settings: Settings, redis_url: str, queues: list[str]) -> None:
    """Serves the queues until a signal has drained the worker. Uses uvloop where it is installed.

    Raises:
        SandboxUnavailable: commands can't be walled in, and the settings require it.
    """
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
    broker = connect(settings, redis_url)
    metrics = Metrics()
    sandbox = detect(settings.sandbox)
    parts = Parts(
        tools=TOOLS,
        gate=PreToolCall(POLICIES, settings.policy_timeout_s),
        classify=PostToolResponse(read_rules(settings.levels), Redactor(known=_known_secrets(settings))),
        broker=broker,
        audit=AuditLog.open(settings.state / "audit", worker=settings.worker),
        sandbox=sandbox,
        limits=Limits(wall_s=settings.command_timeout_s),
        metrics=metrics,
        open_workspace=functools.partial(open_workspace, settings),
        tool_timeout_s=settings.tool_timeout_s,
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
        describe=describe(settings, queues, sandbox),
        redis_pool=ArqRedis(pool, job_serializer=codec.encode, job_deserializer=json.loads),
        job_serializer=codec.encode,
        job_deserializer=json.loads,
    )


def describe(settings: Settings, queues: list[str], sandbox: Sandbox) -> dict[str, Any]:
    """What stays the same in this worker's heartbeats."""
    return {
        "worker": settings.worker,
        "queues": queues,
        "version": version_of_product(),
        "sandbox": sandbox.tier,
        "tools": sorted(TOOLS),
    }


def connect(settings: Settings, redis_url: str) -> Broker:
    """A broker over two connection pools: one that must answer soon, one that may block on the bell."""
    soon_s = max(0.5, min(5.0, settings.lease_s / 3))
    common: dict[str, Any] = {
        "socket_connect_timeout": 2,
        "socket_keepalive": True,
        "lib_name": None,
        "lib_version": None,
    }
    redis: Redis = Redis.from_url(redis_url, socket_timeout=soon_s, **common)
    bell: Redis = Redis.from_url(redis_url, socket_timeout=BELL_TIMEOUT_S + soon_s, **common)
    return Broker(redis, bell, settings, settings.worker)


def open_workspace(settings: Settings, job: JobId, name: str) -> Workspace:
    """The workspace's directory `<workspaces>/<queue>/<name>`, made if it is missing.

    Raises:
        CallFailed: the session's record names a workspace that can't be a directory's name.
    """
    try:
        check_name("workspace", name)
    except ValueError as error:
        raise CallFailed("unavailable", str(error), hint="the orchestrator must set another workspace") from None
    return Workspace.open(str(settings.workspaces / job.queue / name))


def _as_function(name: str) -> Function:
    """arq's view of a tool. arq never calls it: claims go to the executor, which can answer what arq can't."""

    async def refuse(*_: object) -> None:
        raise RuntimeError(f"{name} runs through the executor only")

    return func(refuse, name=name)


def _known_secrets(settings: Settings) -> list[str]:
    if settings.secrets_file is None:
        return []
    return [line for line in settings.secrets_file.read_text().splitlines() if line.strip()]

"""All settings, and the only reader of the environment. Times carry their unit in their name."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

SandboxMode = Literal["require", "prefer", "off"]


class SettingsError(ValueError):
    """A setting that can't be used; the message names it."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker process needs to know. Each field is read from TOOLREEF_<FIELD>; REDIS_URL has its usual name."""

    redis_url: str | None = None
    queue: str = "default"
    state: Path
    workspaces: Path
    require_sessions: bool = False
    sandbox: SandboxMode = "require"
    concurrency: int = 32
    """Calls that one worker process runs side by side."""
    lease_s: float = 15.0
    drain_s: float = 20.0
    """How long SIGTERM waits for running calls before it stops them."""
    session_readers: int = 16
    """`read` calls of one session that run side by side in the fleet; more wait, so that others get their turn."""
    max_payload_bytes: int = 4 * 1024 * 1024
    reply_life_s: float = 7 * 24 * 3600.0
    replies_kept: int = 10_000
    outcome_life_s: float = 24 * 3600.0
    claim_life_s: float = 7 * 24 * 3600.0
    audit_kept: int = 100_000
    plan_life_s: float = 7 * 24 * 3600.0
    tool_timeout_s: float = 60.0
    """Wall time of every tool but run_command, whose limits are its own."""
    command_timeout_s: float = 120.0
    policy_timeout_s: float = 2.0
    secrets_file: Path | None = None
    """Known secrets, one a line, that are redacted from every reply."""
    levels: str = ""
    """Path rules, `glob=LEVEL` separated by commas: what matches has at least that level."""
    deny_commands: str = ""
    """More commands to deny, separated by commas; words of one command by spaces."""
    orchestrator_url: str | None = None
    """Redis by the orchestrator's user, with which the dashboard cancels calls."""
    approver_url: str | None = None
    """Redis by the approver's user, with which the dashboard approves and rejects plans."""
    dashboard_tokens: Path | None = None
    """Who may do what at the dashboard: lines `name roles sha256`. A file in the state directory when left out."""
    worker: str = ""
    """This worker process' name in heartbeats, claims and audit. Host and process id when left out."""


def read_settings(environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """The settings from the environment, with `overrides` (None is left out) on top.

    Raises:
        SettingsError: a value has the wrong form; the message names the variable.
    """
    env = os.environ if environ is None else environ
    values: dict[str, Any] = {"state": str(default_state(env))}
    if env.get("REDIS_URL"):
        values["redis_url"] = env["REDIS_URL"]
    for field in Settings.__struct_fields__:
        text = env.get(f"TOOLREEF_{field.upper()}")
        if text is not None and text != "":
            values[field] = text
    values.update({name: value for name, value in overrides.items() if value is not None})
    values.setdefault("workspaces", str(Path(values["state"]) / "workspaces"))
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()).strip("-") or "host"
    values.setdefault("worker", f"{host}-{os.getpid()}")
    for name in ("state", "workspaces", "secrets_file", "dashboard_tokens"):
        if values.get(name) is not None:
            values[name] = Path(values[name]).expanduser().absolute()
    try:
        settings = msgspec.convert(values, Settings, strict=False, dec_hook=_decode_path)
    except msgspec.ValidationError as error:
        raise SettingsError(_name_variable(str(error))) from None
    _check_ranges(settings)
    return settings


def environment_with(**changes: str) -> dict[str, str]:
    """This process' environment with changes, for a worker process of ours. Agents' commands get a clean one."""
    return {**os.environ, **changes}


def default_state(env: Mapping[str, str]) -> Path:
    """Where state lives when nobody says: the user's state directory."""
    base = env.get("XDG_STATE_HOME") or str(Path(env.get("HOME") or "/var/lib") / ".local" / "state")
    return Path(base) / "toolreef"


def _decode_path(kind: type, value: object) -> object:
    if kind is Path:
        return value if isinstance(value, Path) else Path(str(value))
    raise NotImplementedError(kind)


def _name_variable(message: str) -> str:
    head, _, field = message.partition(" - at `$.")
    return f"TOOLREEF_{field.rstrip('`').upper()}: {head}" if field else message


def _check_ranges(settings: Settings) -> None:
    for name, least in (("concurrency", 1), ("session_readers", 1), ("replies_kept", 1), ("max_payload_bytes", 1)):
        if getattr(settings, name) < least:
            raise SettingsError(f"TOOLREEF_{name.upper()}: must be at least {least}")
    for name in Settings.__struct_fields__:
        if name.endswith("_s") and not 0.05 <= getattr(settings, name) <= 10 * 365 * 24 * 3600:
            raise SettingsError(f"TOOLREEF_{name.upper()}: must be between 0.05 seconds and ten years")

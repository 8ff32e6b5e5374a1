"""All settings, and the only reader of the environment. Times carry their unit in their name."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote, urlsplit

import msgspec
from msgspec import Struct

SandboxMode = Literal["require", "prefer", "off"]
MIN_PASSWORD_CHARS = 8
PlanCommands = Literal["deny", "read_only"]
PATHS = (
    "state",
    "workspaces",
    "secrets_file",
    "dashboard_tokens",
    "approver_keys",
    "approver_key",
    "audit_key_file",
)


_MADE_FOR_COMMANDS = ("/etc", "/proc", "/dev")

TLS_OPTIONS = {"redis_ca": "ssl_ca_certs", "redis_cert": "ssl_certfile", "redis_key": "ssl_keyfile"}
"""Setting to the query option of redis-py's URLs."""

URLS = ("redis_url", "orchestrator_url", "approver_url", "provisioner_url")


class SettingsError(ValueError):
    """A setting that can't be used; the message names it."""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker process needs to know. Each field is read from TOOLREEF_<FIELD>; REDIS_URL has its usual name.

    A URL holds a password. It may stand in a file that TOOLREEF_<FIELD>_FILE names, and is left out of the repr.
    """

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
    max_queue_calls: int = 100_000
    """Calls that wait in one queue, after which agents are told to come back later."""
    max_queue_bytes: int = 512 * 1024 * 1024
    """Bytes of their payloads, likewise."""
    max_memory_percent: int = 80
    """Of Redis' maxmemory, likewise."""
    max_session_calls: int = 1000
    """Calls of one session that wait for its turn; more are answered `unavailable` when a worker sees them."""
    max_session_bytes: int = 64 * 1024 * 1024
    """Bytes of their payloads, likewise."""
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
    command_cpu_s: float = 600.0
    command_memory_bytes: int = 4 * 1024**3
    command_processes: int = 512
    command_file_bytes: int = 2 * 1024**3
    command_output_bytes: int = 200 * 1024
    """Kept in the reply of each of a command's streams, half of its head and half of its tail."""
    workspace_bytes: int = 16 * 1024**3
    """What one workspace may hold on disk, 0 for any amount. Who is over it can only make it less."""
    read_only_dirs: str = ""
    """Directories that commands may read besides the system's, separated by colons. Every session may read them."""
    policy_timeout_s: float = 2.0
    hooks: str = ""
    """Hooks of other packages that must be installed, by name, separated by commas. Others are asked as well."""
    hook_timeout_s: float = 2.0
    """How long the hooks of one moment may take together before the call is denied or its answer withheld."""
    hook_processes: int = 1
    """Helper processes that hooks run in; each is asked one thing at a time."""
    hook_memory_mb: int = 1024
    """Address space of one helper process."""
    secrets_file: Path | None = None
    """Known secrets, one a line, that are redacted from every reply."""
    secret_tools: str = ""
    """Which tools may use which of them, `name=tool+tool` separated by commas; all others are redacted only."""
    levels: str = ""
    """Path rules, `glob=LEVEL` separated by commas: what matches has at least that level."""
    policy: str = ""
    """The operator's rules: TOML files, separated by colons. Read again on SIGHUP."""
    deny_commands: str = ""
    """More commands to deny, separated by commas; words of one command by spaces."""
    orchestrator_url: str | None = None
    """Redis by the orchestrator's user, with which the dashboard cancels calls."""
    approver_url: str | None = None
    """Redis by the approver's user, with which the dashboard approves and rejects plans."""
    provisioner_url: str | None = None
    """Redis by the provisioner's user, with which `session open` makes the agent's user and `close` removes it."""
    redis_ca: Path | None = None
    """The authority that vouches for Redis' certificate. For every rediss:// URL that does not name its own."""
    redis_cert: Path | None = None
    """The certificate that we show Redis, likewise."""
    redis_key: Path | None = None
    """The key of that certificate, likewise."""
    dashboard_tokens: Path | None = None
    """Who may do what at the dashboard: lines `name roles sha256`. A file in the state directory when left out."""
    approver_keys: Path | None = None
    """The approvers' public keys, lines `name base64` (Ed25519): with them only signed approvals count."""
    approver_key: Path | None = None
    """An approver's private key in PEM, with which `plan approve` and `policy approve` sign."""
    plan_commands: PlanCommands = "deny"
    """Commands in plan mode before the approval: refused, or `read_only`, in a sandbox that can write nothing."""
    audit_key_file: Path | None = None
    """What signs the audit log's checkpoints: a secret of 16 bytes or more, or an Ed25519 key in PEM."""
    audit_fsync: bool = False
    """Whether decisions on effects wait until they have reached the disk itself."""
    worker: str = ""
    """This worker process' name in heartbeats, claims and audit. Host and process id when left out."""

    def __repr__(self) -> str:
        hidden = {name: "***" for name in URLS if getattr(self, name) is not None}
        shown = {name: hidden.get(name, getattr(self, name)) for name in self.__struct_fields__}
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


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
    _read_url_files(env, values)
    values.update({name: value for name, value in overrides.items() if value is not None})
    values.setdefault("workspaces", str(Path(values["state"]) / "workspaces"))
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()).strip("-") or "host"
    values.setdefault("worker", f"{host}-{os.getpid()}")
    for name in (*PATHS, *TLS_OPTIONS):
        if values.get(name) is not None:
            values[name] = Path(values[name]).expanduser().absolute()
    try:
        settings = msgspec.convert(values, Settings, strict=False, dec_hook=_decode_path)
    except msgspec.ValidationError as error:
        raise SettingsError(_name_variable(str(error))) from None
    _check_ranges(settings)
    return msgspec.structs.replace(settings, **_with_tls(settings))


def _read_url_files(env: Mapping[str, str], values: dict[str, Any]) -> None:
    for name in URLS:
        variable = f"TOOLREEF_{name.upper()}_FILE"
        path = env.get(variable)
        if not path:
            continue
        if values.get(name):
            raise SettingsError(f"{variable}: the URL itself is set as well; which of the two counts?")
        try:
            values[name] = Path(path).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{variable}: can't be read: {getattr(error, 'strerror', 'not text')}") from None
        if not values[name]:
            raise SettingsError(f"{variable}: the file is empty")


def _with_tls(settings: Settings) -> dict[str, str]:
    """The URLs with the certificates of the settings, as redis-py's query options."""
    given = {name: getattr(settings, name) for name in TLS_OPTIONS if getattr(settings, name) is not None}
    for name, path in given.items():
        if not os.access(path, os.R_OK):
            raise SettingsError(f"TOOLREEF_{name.upper()}: {path} can't be read")
    urls = {name: url for name in URLS if (url := getattr(settings, name)) is not None}
    if given and not any(url.startswith("rediss") for url in urls.values()):
        # Somebody who names certificates believes to be using them.
        raise SettingsError(f"TOOLREEF_{next(iter(given)).upper()}: no URL begins with rediss, so nothing would use it")
    for name, url in urls.items():
        # Quoted twice, since redis-py takes two layers off.
        options = [
            f"{TLS_OPTIONS[each]}={quote(quote(str(path)))}"
            for each, path in given.items()
            if f"{TLS_OPTIONS[each]}=" not in url
        ]
        if options and url.startswith("rediss"):
            urls[name] = url + ("&" if "?" in url else "?") + "&".join(options)
    return urls


def url_passwords(settings: Settings, redis_url: str) -> dict[str, str]:
    """The passwords of the URLs, by name. Short or common ones are left out: they would be found everywhere."""
    urls = {name: getattr(settings, name) for name in URLS if getattr(settings, name) is not None}
    found = {}
    for name, url in {**urls, "redis_url": redis_url}.items():
        password = unquote(urlsplit(url).password or "")
        named = name.replace("_", "-") + "-password"
        if len(password) >= MIN_PASSWORD_CHARS and password not in f"[redacted:{named}]":
            found[named] = password
    return found


def policy_files(settings: Settings) -> tuple[Path, ...]:
    """The policy's files, in their order."""
    return tuple(Path(name).expanduser().absolute() for name in settings.policy.split(os.pathsep) if name)


def read_only_dirs(settings: Settings) -> tuple[str, ...]:
    """The directories that commands may read besides the system's.

    Raises:
        SettingsError: one is relative or missing, or has to do with what the settings keep from commands.
    """
    found = []
    kept = {name: value for name in (*PATHS, *TLS_OPTIONS) if (value := getattr(settings, name)) is not None}
    for text in filter(None, settings.read_only_dirs.split(os.pathsep)):
        path = Path(text)
        if not path.is_absolute():
            raise SettingsError(f"TOOLREEF_READ_ONLY_DIRS: {text} is not absolute")
        if not path.is_dir():
            raise SettingsError(f"TOOLREEF_READ_ONLY_DIRS: {text} is no directory, or there is none")
        real = path.resolve()
        if any(each.is_relative_to(place) for each in (path, real) for place in _MADE_FOR_COMMANDS):
            raise SettingsError(
                f"TOOLREEF_READ_ONLY_DIRS: {text}: /etc, /proc and /dev are made for commands, not shown"
            )
        for name, value in kept.items():
            place = value.resolve()
            if place.is_relative_to(real) or (name in ("state", "workspaces") and real.is_relative_to(place)):
                message = f"{text} is not apart from TOOLREEF_{name.upper()}, {value}"
                raise SettingsError(f"TOOLREEF_READ_ONLY_DIRS: {message}")
        found.append(os.path.normpath(text))
    return tuple(found)


def denied_commands(settings: Settings) -> tuple[str, ...]:
    """The first words of each command that is denied by a setting."""
    return tuple(words.strip() for words in settings.deny_commands.split(",") if words.strip())


def environment_with(**changes: str) -> dict[str, str]:
    """This process' environment with changes, for a worker process of ours. Agents' commands get a clean one."""
    return {**os.environ, **changes}


def environment_of_hooks() -> dict[str, str]:
    """This process' environment for hooks of other packages: without the ways to Redis and to known secrets."""
    files = {f"TOOLREEF_{name.upper()}{end}" for name in URLS for end in ("", "_FILE")}
    hidden = {"REDIS_URL", "TOOLREEF_SECRETS_FILE", *files}
    return {name: value for name, value in os.environ.items() if name not in hidden}


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
    counts = ("concurrency", "session_readers", "replies_kept", "hook_processes", "command_processes")
    for name in (*counts, *(each for each in Settings.__struct_fields__ if "max_" in each or each.endswith("_bytes"))):
        lowest = 0 if name == "workspace_bytes" else 1
        if getattr(settings, name) < lowest:
            raise SettingsError(f"TOOLREEF_{name.upper()}: must be at least {lowest}")
    if settings.hook_memory_mb < 64:
        raise SettingsError("TOOLREEF_HOOK_MEMORY_MB: must be at least 64")
    for name in Settings.__struct_fields__:
        if name.endswith("_s") and not 0.05 <= getattr(settings, name) <= 10 * 365 * 24 * 3600:
            raise SettingsError(f"TOOLREEF_{name.upper()}: must be between 0.05 seconds and ten years")

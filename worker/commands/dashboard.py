"""toolreef dashboard: the fleet in a browser and as JSON."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import ipaddress
import logging
import socket
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from contracts.calls import check_name
from contracts.levels import Level
from worker.approvals import Approvals
from worker.commands.connection import FAILED, OK, UsageError, approver_key, complain, redis_of
from worker.settings import Settings, environment_with, read_settings
from worker.supervisor import die_with_parent

if TYPE_CHECKING:
    from worker.dashboard.app import Config

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8646
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
EXTRA = ("starlette", "uvicorn")
STOP_TIMEOUT_S = 10.0


def register(commands: Any) -> None:
    """Adds the command."""
    parser: ArgumentParser = commands.add_parser("dashboard", help="the fleet in a browser and as JSON")
    parser.add_argument("--queue", action="append", metavar="Q", help="a queue to show; may be repeated")
    parser.add_argument("--host", default=DEFAULT_HOST, help="the address to listen at (default: loopback)")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"default {DEFAULT_PORT}; 0 takes a free one")
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME", help="answer under this name too")
    parser.add_argument(
        "--payloads",
        choices=["none", *(level.value for level in Level)],
        default=Level.INTERNAL.value,
        help="the highest level whose arguments and outputs are shown (default INTERNAL)",
    )
    parser.add_argument("--anonymous", action="store_true", help="let everybody look, even where there are tokens")
    parser.add_argument("--trusted-proxy", action="append", default=[], metavar="CIDR", help="believe its headers")
    parser.add_argument("--user-header", default="X-Forwarded-User", metavar="NAME", help="who, by a trusted proxy")
    parser.add_argument("--role-header", default="X-Forwarded-Roles", metavar="NAME", help="roles, by a trusted proxy")
    parser.add_argument(
        "--add-token", metavar="NAME=ROLES", help="make a token for viewer, operator or approver, print it, and exit"
    )
    parser.add_argument("--supervised", action="store_true", help="end when the parent process ends")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Runs `toolreef dashboard`."""
    settings = read_settings()
    if not 0 <= options.port <= 65535:
        raise UsageError(f"--port {options.port}: must be 0 to 65535")
    if missing := missing_packages():
        complain(f"the dashboard needs {' and '.join(missing)}: pip install 'toolreef[dashboard]'")
        return FAILED
    # Imported here: the web server would slow every other command's start.
    from worker.dashboard.server import listen, serve

    if options.add_token is not None:
        return _add_token(settings, options.add_token)
    if options.supervised:
        die_with_parent()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("toolreef").setLevel(logging.INFO)
    queues = [check_name("queue", queue) for queue in options.queue or [settings.queue]]
    with redis_of(settings) as url:
        config, audit = _config(options, settings, url, queues)
        try:
            listener = listen(options.host, options.port)
            print(f"toolreef dashboard: {address_of(options.host, listener.getsockname()[1])}", flush=True)
            asyncio.run(serve(config, listener))
        finally:
            audit.close()
    return OK


def missing_packages() -> list[str]:
    """What the extra `dashboard` would install and is not there."""
    return [name for name in EXTRA if importlib.util.find_spec(name) is None]


def address_of(host: str, port: int) -> str:
    """The address to open in a browser."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


@contextlib.contextmanager
def beside(queues: Sequence[str]) -> Iterator[None]:
    """A dashboard in a process of its own for as long as the block runs, at the usual port or, if that is taken, at
    any. It prints its address itself. Without the extra `dashboard` it says so, and the block runs without one."""
    if missing_packages():
        complain("no dashboard: pip install 'toolreef[dashboard]'")
        yield
        return
    port = str(DEFAULT_PORT if _is_free(DEFAULT_PORT) else 0)
    command = [sys.executable, "-m", "worker", "dashboard", "--supervised", "--port", port]
    for queue in queues:
        command += ["--queue", queue]
    # A session of its own: Ctrl-C ends it through us, after the workers have drained.
    child = subprocess.Popen(command, env=environment_with(), stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        child.terminate()
        try:
            child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((DEFAULT_HOST, port))
        except OSError:
            return False
    return True


def _add_token(settings: Settings, wanted: str) -> int:
    from worker.dashboard.people import add_token

    name, equals, roles = wanted.partition("=")
    if not equals:
        raise UsageError(f"--add-token {wanted!r} is not NAME=ROLES")
    file = settings.dashboard_tokens or settings.state / "dashboard.tokens"
    token = add_token(file, name, roles)
    complain(f"{name} is {roles} at the next start of the dashboard; {file} holds the token's hash only")
    print(token)
    return OK


def _config(options: Namespace, settings: Settings, url: str, queues: Sequence[str]) -> tuple[Config, Any]:
    from worker.audit import AuditLog
    from worker.dashboard.actions import Actions
    from worker.dashboard.app import Config
    from worker.dashboard.people import People, Proxy, read_networks, read_tokens
    from worker.dashboard.reads import Reads
    from worker.vault import redactor_of

    file = settings.dashboard_tokens or settings.state / "dashboard.tokens"
    tokens = read_tokens(file) if settings.dashboard_tokens or file.exists() else {}
    proxy = Proxy(read_networks(options.trusted_proxy), options.user_header.lower(), options.role_header.lower())
    anonymous = options.anonymous or not (tokens or proxy.networks)
    if anonymous and not options.anonymous and not _is_loopback(options.host):
        raise UsageError(
            f"--host {options.host} is open to others: make tokens (--add-token), name a --trusted-proxy, "
            "or say --anonymous to let everybody look"
        )
    audit = AuditLog.open(settings.state / "audit", worker=f"dashboard-{settings.worker}"[:128])
    acting = _acting_urls(settings, url)
    config = Config(
        reads=Reads.connect(url, queues),
        actions=Actions(audit, orchestrator_url=acting[0], approver_url=acting[1], key=approver_key(settings)),
        approvals=Approvals.read(settings.approver_keys),
        people=People(tokens, proxy, anonymous=anonymous),
        redactor=redactor_of(settings, url),
        hosts=(*(LOOPBACK_NAMES if _is_loopback(options.host) else (_in_url(options.host),)), *options.allow_host),
        payloads=None if options.payloads == "none" else Level(options.payloads),
    )
    return config, audit


def _acting_urls(settings: Settings, url: str) -> tuple[str | None, str | None]:
    """Whom to act as. A Redis without users has but one, who may do everything; else each role needs its own."""
    fallback = url if urlsplit(url).username in (None, "", "default") else None
    return settings.orchestrator_url or fallback, settings.approver_url or fallback


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host

"""toolreef call: one call or a batch; the terminal reply as one JSON line each."""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from typing import Any, get_args

import msgspec
from msgspec import Struct

from contracts.calls import check_name
from contracts.client import Client, new_call_id
from contracts.connection import UNREACHABLE
from contracts.replies import Completed, Denied, Failed, Progress, TerminalReply
from contracts.tools import TOOLS
from worker.commands.connection import (
    DENIED,
    FAILED,
    OK,
    UNANSWERED,
    UsageError,
    add_queue,
    add_session,
    complain,
    redis_of,
    say,
    settings_of,
)
from worker.failures import error_of

DEFAULT_TIMEOUT_S = 300.0
DEFAULT_SESSION = "cli"
BATCH_WINDOW = 256
"""Calls of a batch that are on their way at once."""

STATUS = {Completed: OK, Denied: DENIED, Failed: FAILED}


class BatchLine(Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a batch file."""

    tool: str
    args: dict[str, Any] = {}
    session: str | None = None
    call_id: str | None = None


def register(commands: Any) -> None:
    """Adds the command."""
    parser: ArgumentParser = commands.add_parser(
        "call",
        help="carry out one tool call and print its terminal reply",
        description="Exit status: 0 completed, 2 usage, 3 denied, 4 failed, 5 no terminal reply within --timeout. "
        "A batch ends with 0 when every line has its terminal reply, else 5.",
    )
    parser.add_argument("tool", nargs="?", metavar="TOOL", help=", ".join(TOOLS))
    parser.add_argument("arguments", nargs="*", metavar="key=value", help="the tool's arguments")
    parser.add_argument("--args", metavar="JSON", help="the tool's arguments as one JSON object")
    parser.add_argument("--batch", metavar="FILE", help='JSON lines {"tool","args","session"?,"call_id"?}; - is stdin')
    parser.add_argument("--call-id", help="the idempotency key (default: a new one)")
    parser.add_argument("--timeout", type=float, default=DEFAULT_TIMEOUT_S, metavar="SECONDS", help="default 300")
    parser.add_argument("--deadline", type=float, metavar="SECONDS", help="give up unless it has ended by then")
    parser.add_argument("--batch-priority", action="store_true", help="queue behind interactive calls")
    parser.add_argument("--follow", action="store_true", help="show output on standard error as it comes")
    add_queue(parser)
    add_session(parser, required=False)
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    """Runs `toolreef call`."""
    if options.batch is not None:
        if options.tool or options.args or options.call_id:
            raise UsageError("--batch takes its calls from the file: leave TOOL, --args and --call-id out")
        return _run_batch(options)
    if not options.tool:
        raise UsageError("which tool? One of: " + ", ".join(TOOLS))
    return run_one(options, read_arguments(options.tool, options.arguments, options.args))


def run_one(options: Namespace, args: dict[str, Any]) -> int:
    """Carries out the one call that `options` and `args` describe, and prints its reply."""
    return _with_client(options, lambda client: _one(client, options, args))


def read_arguments(tool: str, pairs: Iterable[str], text: str | None) -> dict[str, Any]:
    """The arguments of a call from `key=value` words or one JSON object.

    A value is taken as it stands where the tool's field is text, else as JSON.

    Raises:
        UsageError: a word is no pair, a key stands twice, or the JSON is no object.
    """
    args: dict[str, Any] = {}
    if text is not None:
        try:
            args = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise UsageError(f"--args: {error}") from None
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"{pair[:80]!r} is not key=value")
        if key in args:
            raise UsageError(f"argument {key!r} is given twice")
        args[key] = _read_value(tool, key, value)
    try:
        msgspec.json.encode(args)
    except UnicodeEncodeError:
        raise UsageError("the arguments are not valid UTF-8") from None
    return args


def _read_value(tool: str, key: str, value: str) -> Any:
    hints = TOOLS[tool].args.__annotations__ if tool in TOOLS else {}
    field = next((f for f in msgspec.structs.fields(TOOLS[tool].args) if f.name == key), None) if hints else None
    if field is None or field.type is str or str in get_args(field.type) or "Annotated[str" in str(hints.get(key)):
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


def _with_client(options: Namespace, act: Any) -> int:
    if not options.timeout > 0:
        raise UsageError(f"--timeout {options.timeout:g}: must be more than 0 seconds")
    settings = settings_of(options)
    with redis_of(settings) as url:

        async def main() -> int:
            async with Client.connect(url, queue=settings.queue) as client:
                if not await client.is_served():
                    complain(f"no worker has served queue {settings.queue!r} lately; start one with `toolreef up`")
                status: int = await act(client)
                return status

        return asyncio.run(main())


async def _one(client: Client, options: Namespace, args: dict[str, Any]) -> int:
    call_id = new_call_id() if options.call_id is None else options.call_id
    try:
        reply = await client.call(
            options.tool,
            args,
            session=options.session or DEFAULT_SESSION,
            call_id=call_id,
            timeout_s=options.timeout,
            deadline_s=options.deadline,
            priority=_priority(options),
            on_progress=_show_progress if options.follow else None,
        )
    except TimeoutError:
        complain(f"no terminal reply to call {call_id} within {options.timeout:g} s; it may still run")
        return UNANSWERED
    say(reply)
    return STATUS[type(reply)]


def _priority(options: Namespace) -> str:
    return "batch" if options.batch_priority else "interactive"


def _show_progress(progress: Progress) -> None:
    if progress.dropped_bytes:
        sys.stderr.write(f"\n[{progress.dropped_bytes} bytes left out]\n")
    sys.stderr.write(progress.text)
    sys.stderr.flush()


def _run_batch(options: Namespace) -> int:
    if options.batch == "-":
        lines = sys.stdin.buffer.read().splitlines()
    else:
        with open(options.batch, "rb") as file:
            lines = file.read().splitlines()
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    return _with_client(options, lambda client: _batch(client, options, numbered))


async def _batch(client: Client, options: Namespace, lines: list[tuple[int, bytes]]) -> int:
    """Submits in the file's order, prints in the file's order, and waits for many at once."""
    window = asyncio.Semaphore(BATCH_WINDOW)

    async def answer(number: int, line: bytes) -> Any:
        async with window:
            return await _answer_line(client, options, number, line)

    tasks = [asyncio.create_task(answer(number, line)) for number, line in lines]
    status = OK
    for task in tasks:
        reply = await task
        if not isinstance(reply, TerminalReply):
            status = UNANSWERED
        say(reply)
    return status


async def _answer_line(client: Client, options: Namespace, number: int, line: bytes) -> Any:
    session, call_id, tool = options.session or DEFAULT_SESSION, new_call_id(), ""
    try:
        read = msgspec.json.decode(line, type=BatchLine)
        tool = read.tool
        session = session if read.session is None else read.session
        call_id = call_id if read.call_id is None else read.call_id
        check_name("session", session), check_name("call id", call_id)
        return await client.call(
            tool,
            read.args,
            session=session,
            call_id=call_id,
            timeout_s=options.timeout,
            deadline_s=options.deadline,
            priority=_priority(options),
        )
    except TimeoutError:
        return {"v": 1, "session": session, "call": call_id, "kind": "pending", "tool": tool, "line": number}
    except (ValueError, RecursionError) as error:
        refused = error_of("invalid_call", f"line {number}: {error}")
    except UNREACHABLE as error:
        refused = error_of("unavailable", f"line {number}: {error}", effect="unknown", retryable=True)
    return Failed(session=session[:64], call=call_id[:64], tool=tool[:64], error=refused)

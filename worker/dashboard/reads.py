"""The dashboard's door to Redis. Every read is bounded: by a count, by one key, or by the number of workers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Self

import msgspec
from msgspec import Struct

from contracts import keys
from contracts.calls import JobId, read_job_id
from contracts.connection import clock_ms, connect

HEAD_BYTES = 64 * 1024
"""Of a payload that is still in Redis, so much is read."""

_HEAD = re.compile(rb'^\s*{\s*"t"\s*:\s*[\w.+-]+\s*,\s*"f"\s*:\s*"([\w.-]{0,64})"')
_ENQUEUED = re.compile(rb'"et"\s*:\s*(\d{1,16})\s*}\s*$')


class Entry(Struct, frozen=True, kw_only=True):
    """One ended call as the audit stream has it. `stream_id` tells when it ended."""

    stream_id: str = ""
    session: str = ""
    call: str = ""
    id: str = ""
    tool: str = ""
    kind: str = "failed"
    code: str = ""
    policy: str = ""
    rule: str = ""
    level: str = "PUBLIC"
    taint: str = "PUBLIC"
    attempt: int = 0
    queued_ms: int = 0
    run_ms: int = 0
    worker: str = ""
    about: str = ""

    @property
    def at_ms(self) -> int:
        """When it ended, by Redis' clock."""
        return stream_ms(self.stream_id)


class _Body(Struct):
    args: Any = None
    deadline_ms: int | None = None
    priority: str = "interactive"
    trace: str | None = None


class _Payload(Struct):
    f: str = ""
    a: list[_Body] = []
    et: int = 0


_entry_decoder = msgspec.json.Decoder(Entry)
_payload_decoder = msgspec.json.Decoder(_Payload)


class Peek(Struct, frozen=True, kw_only=True):
    """What can be told of a payload from its head and tail. `args` is None where it is longer than what was read."""

    tool: str = ""
    args: Any = None
    head: str = ""
    submitted_ms: int | None = None
    deadline_ms: int | None = None
    priority: str = "interactive"
    trace: str = ""


class Reads:
    """One pool for one Redis user. Methods may raise redis.RedisError or OSError."""

    def __init__(self, redis: Any, queues: Sequence[str]) -> None:
        self.redis = redis
        self.queues = tuple(queues)

    @classmethod
    def connect(cls, url: str, queues: Sequence[str]) -> Self:
        """Connects on first use. A silent server shows after two seconds."""
        return cls(connect(url, socket_timeout=2, socket_connect_timeout=2), queues)

    async def close(self) -> None:
        """Closes the connections."""
        await self.redis.aclose()

    async def many(self, commands: Iterable[tuple[Any, ...]]) -> list[Any]:
        """The answers to commands that are sent at once. ZRANGE WITHSCORES comes flat: member, score, member, ..."""
        async with self.redis.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            answers: list[Any] = await pipe.execute()
        return answers

    async def now_ms(self) -> int:
        """Redis' clock."""
        return clock_ms(await self.redis.time())

    async def ping(self) -> None:
        """Raises if Redis does not answer."""
        await self.redis.ping()


def stream_ms(stream_id: str) -> int:
    """The time in a stream id."""
    head = stream_id.partition("-")[0]
    return int(head) if head.isdigit() else 0


def read_entries(answer: Any) -> list[Entry]:
    """The audit entries of an XRANGE or XREVRANGE answer, in its order. What is none of ours is left out."""
    return [entry for item in answer or () if (entry := read_entry(item)) is not None]


def read_entry(item: Any) -> Entry | None:
    """One stream entry, or None if it is none of ours."""
    stream_id, fields = item
    try:
        entry = _entry_decoder.decode(fields[b"entry"])
        job = read_job_id(entry.id)
    except (KeyError, TypeError, ValueError):
        return None
    return msgspec.structs.replace(entry, stream_id=stream_id.decode(), session=job.session, call=job.call)


def peek(head: bytes | None, tail: bytes | None) -> Peek:
    """What a payload's first and last bytes tell. Agents write payloads, so nothing of it is trusted to be there."""
    head, tail = head or b"", tail or b""
    text = head.decode(errors="replace")
    try:
        whole = _payload_decoder.decode(head)
    except (ValueError, RecursionError):
        tool, submitted = _HEAD.match(head), _ENQUEUED.search(tail)
        return Peek(
            tool=tool[1].decode() if tool else "",
            head=text,
            submitted_ms=int(submitted[1]) if submitted else None,
        )
    body = whole.a[0] if whole.a else _Body()
    return Peek(
        tool=whole.f[:64],
        args=body.args,
        head=text,
        submitted_ms=whole.et if 0 < whole.et < 2**53 else None,
        deadline_ms=body.deadline_ms,
        priority=body.priority[:16],
        trace=(body.trace or "")[:256],
    )


def about(args: Any) -> str:
    """What a call is about, as the audit stream has it: its command, path or summary."""
    if not isinstance(args, dict):
        return ""
    return next((args[name] for name in ("command", "path", "summary") if isinstance(args.get(name), str)), "")


def job_of(member: bytes) -> JobId | None:
    """A queue's member as a job id; None where somebody added what is none."""
    try:
        return read_job_id(member.decode())
    except ValueError:
        return None


def text(value: bytes | None, default: str = "") -> str:
    """Bytes as text, whatever they are."""
    return default if value is None else value.decode(errors="replace")


class Claim(Struct, frozen=True, kw_only=True):
    """Who has claimed a call and when, by Redis' clock; nothing for a call that nobody has."""

    worker: str = ""
    started_ms: int | None = None


def read_claim(value: bytes | None) -> Claim:
    """A claim as `arq:in-progress:` has it."""
    head, _, owner = text(value).partition(" ")
    return Claim(worker=owner, started_ms=number(head.rpartition("/")[2])) if value else Claim()


def attempts(held: bytes | None) -> int:
    """How often a call was claimed, out of what its session has noted of it."""
    noted = text(held)
    return number(noted[1:]) or 0 if noted[:1] in ("r", "e", "x") else 0


def number(value: Any) -> int | None:
    """An integer out of what Redis has stored, or None."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def peek_commands(queue: str, session: str, call: str) -> tuple[tuple[Any, ...], ...]:
    """The two reads behind `peek`."""
    key = keys.job(queue, session, call)
    return ("GETRANGE", key, 0, HEAD_BYTES - 1), ("GETRANGE", key, -64, -1)

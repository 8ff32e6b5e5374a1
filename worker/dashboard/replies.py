"""Entries of a reply stream, as the dashboard reads them: whatever they hold, nothing raises."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from contracts.levels import read_level
from worker.dashboard.reads import stream_ms


class Reply(Struct, frozen=True, kw_only=True):
    """A progress entry or a terminal reply, with what pages show of it."""

    kind: str = ""
    call: str = ""
    tool: str = ""
    stream_id: str = ""
    stream: str = ""
    text: str = ""
    dropped_bytes: int = 0
    level: str = "PUBLIC"
    taint: str = "PUBLIC"
    sandbox: str = ""
    attempt: int = 0
    queued_ms: int = 0
    run_ms: int = 0
    output: Any = None
    error: dict[str, Any] | None = None

    @property
    def at_ms(self) -> int:
        """When it was written, by Redis' clock."""
        return stream_ms(self.stream_id)


_decoder = msgspec.json.Decoder(Reply)


def read_reply(item: Any) -> Reply | None:
    """One entry of a reply stream, or None if it is none of ours."""
    stream_id, fields = item
    return decode(fields.get(b"reply", b""), stream_id.decode())


def decode(data: bytes, stream_id: str) -> Reply | None:
    """A reply's JSON, or None if it is none of ours."""
    try:
        reply = _decoder.decode(data)
    except (ValueError, RecursionError):
        return None
    levels = {"level": read_level(reply.level).value, "taint": read_level(reply.taint).value}
    return msgspec.structs.replace(reply, stream_id=stream_id, **levels)

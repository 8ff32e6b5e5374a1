"""The one encoder, the decoders, and the size caps. JSON always, never pickle."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from contracts.calls import VERSION, Job, JobId, ToolCall
from contracts.replies import AnyReply
from contracts.tools import TOOLS

T = TypeVar("T")

MAX_PAYLOAD_BYTES = 4 * 1024 * 1024
MAX_STORED_REPLY_BYTES = 4096

_encoder = msgspec.json.Encoder()
_job_decoder = msgspec.json.Decoder(Job)
_reply_decoder: msgspec.json.Decoder[AnyReply] = msgspec.json.Decoder(AnyReply)
_args_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(tool.args) for name, tool in TOOLS.items()
}
_any_decoder = msgspec.json.Decoder()
_sorted_encoder = msgspec.json.Encoder(order="sorted")


encode: Callable[[Any], bytes] = _encoder.encode
"""The value as JSON bytes."""


def encode_call(
    tool: str,
    args: Any,
    *,
    enqueued_ms: int,
    deadline_ms: int | None = None,
    priority: str = "interactive",
    trace: str | None = None,
) -> bytes:
    """The payload of one call: arq's job layout around the call body. `args` is a struct or a plain object."""
    body: dict[str, Any] = {"v": VERSION, "args": args}
    if deadline_ms is not None:
        body["deadline_ms"] = deadline_ms
    if priority != "interactive":
        body["priority"] = priority
    if trace is not None:
        body["trace"] = trace
    return _encoder.encode({"t": None, "f": tool, "a": [body], "k": {}, "et": enqueued_ms})


def decode_call(job_id: JobId, payload: bytes) -> tuple[ToolCall, str]:
    """A payload as a call, and the digest of its content.

    Of a key given twice the last counts, for the arguments and for the digest alike.

    Raises:
        ValueError: not JSON, not the job layout, an unknown tool, wrong or unknown arguments; the message says where.
    """
    job = _decode(_job_decoder, payload, "$")
    if len(job.a) != 1 or job.k:
        raise ValueError("expected one positional argument and no keyword arguments - at `$.a`")
    body = job.a[0]
    if body.v != VERSION:
        raise ValueError(f"version {body.v} is not known here, {VERSION} is - at `$.a[0].v`")
    decoder = _args_decoders.get(job.f)
    if decoder is None:
        raise ValueError(f"unknown tool {job.f[:64]!r}, the tools are: {', '.join(sorted(TOOLS))} - at `$.f`")
    args = _decode(decoder, body.args, "$.a[0].args")
    call = ToolCall(
        session=job_id.session,
        call=job_id.call,
        tool=job.f,
        args=args,
        deadline_ms=body.deadline_ms,
        priority=body.priority,
        trace=body.trace,
    )
    return call, content_digest(job.f, body.args)


def content_digest(tool: str, args: bytes | msgspec.Raw) -> str:
    """What makes two calls the same: the tool and its arguments, whatever their spelling as JSON. 32 hex digits."""
    canonical = _sorted_encoder.encode(_decode(_any_decoder, args, "$.a[0].args"))
    return hashlib.sha256(tool.encode() + b"\0" + canonical).hexdigest()[:32]


def payload_digest(payload: bytes) -> str:
    """The digest of a payload: of its content where it can be decoded, else of its bytes."""
    try:
        job = _decode(_job_decoder, payload, "$")
        return content_digest(job.f, job.a[0].args)
    except (ValueError, IndexError):
        return hashlib.sha256(payload).hexdigest()[:32]


def decode_entry(fields: Sequence[bytes]) -> AnyReply:
    """The reply in a reply stream's entry: names and values in turn, as Redis answers.

    Raises:
        ValueError, KeyError: it is not one of ours.
    """
    return decode_reply(dict(zip(fields[::2], fields[1::2], strict=True))[b"reply"])


def decode_reply(data: bytes | str) -> AnyReply:
    """A reply stream entry's JSON.

    Raises:
        msgspec.DecodeError: it is not a reply of ours. A ValueError, like all that msgspec raises.
    """
    return _decode(_reply_decoder, data, "$")


def _decode(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw | str, where: str) -> T:
    """Raises msgspec.ValidationError or DecodeError, both ValueErrors, whatever the data."""
    try:
        return decoder.decode(data)
    except RecursionError:
        raise msgspec.ValidationError(f"nested too deeply - at `{where}`") from None
    except msgspec.ValidationError as error:
        message = str(error)
        found = message.replace("`$", f"`{where}") if "`$" in message else f"{message} - at `{where}`"
        raise msgspec.ValidationError(found) from None

"""The AsyncAPI 3.0 document: the channels between agents and workers, as the worker sees them."""

from __future__ import annotations

from typing import Any

from contracts.calls import VERSION

Schema = dict[str, Any]

_PARAMETERS = {
    "tag": "The queue's name in braces, as in `{default}`: the hash tag of all its keys.",
    "session": "The session's name.",
    "call": "The call's name, its idempotency key within the session.",
}
_KINDS = {
    "Progress": "Output of a call that is still running.",
    "Completed": "Terminal: the tool ran, `output` has its answer.",
    "Denied": "Terminal: a policy said no or asks for approval; nothing ran.",
    "Failed": "Terminal: it could not be done, or nobody can tell; `error` says which.",
}


def asyncapi(schemas: dict[str, Schema]) -> Schema:
    """The document around the contract's schemas, whose references must point to `#/components/schemas/`."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "toolreef",
            "version": f"{VERSION}.0.0",
            "description": "Agents push tool calls, workers answer each with exactly one terminal reply.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {"redis": {"host": "localhost:6379", "protocol": "redis", "description": "Redis 7 or Valkey."}},
        "channels": {
            "job": _channel(
                "arq:job:{tag}:{session}:{call}",
                "String, `SET NX PX`. Accepted once this succeeded and the queue's entry is acknowledged.",
                {"job": _message("Job")},
            ),
            "queue": _channel(
                "arq:queue:{tag}",
                "Sorted set, `ZADD NX` of the job id `{queue}:session:call` by due time in ms of Redis' clock.",
                {"entry": _message("QueueEntry")},
            ),
            "bell": _channel("reef:{tag}:bell", "List, `LPUSH`: wakes a worker.", {"ring": _message("Ring")}),
            "replies": _channel(
                "reef:{tag}:replies:{session}",
                "Stream, read with XREAD. One field `reply` an entry; exactly one terminal entry a call.",
                {kind.lower(): _message(kind) for kind in _KINDS},
            ),
        },
        "operations": {
            "receiveJob": _operation("receive", "job", ["job"], "Reads the payload of a claimed call."),
            "receiveEntry": _operation("receive", "queue", ["entry"], "Claims what is due."),
            "receiveRing": _operation("receive", "bell", ["ring"], "Wakes, and claims."),
            "sendReply": _operation(
                "send", "replies", [kind.lower() for kind in _KINDS], "Progress, then the one terminal reply."
            ),
        },
        "components": {"messages": _messages(), "schemas": schemas},
    }


def _channel(address: str, description: str, messages: dict[str, Schema]) -> Schema:
    parameters = {name: {"description": text} for name, text in _PARAMETERS.items() if f"{{{name}}}" in address}
    return {"address": address, "description": description, "messages": messages, "parameters": parameters}


def _message(name: str) -> Schema:
    return {"$ref": f"#/components/messages/{name}"}


def _operation(action: str, channel: str, messages: list[str], summary: str) -> Schema:
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "messages": [{"$ref": f"#/channels/{channel}/messages/{name}"} for name in messages],
        "summary": summary,
    }


def _messages() -> dict[str, Schema]:
    plain = {
        "QueueEntry": {"summary": "The job's id, its score the due time.", "payload": {"type": "string"}},
        "Ring": {"summary": "Any value.", "payload": {"type": "string"}},
    }
    return {
        "Job": {"summary": "One tool call.", "payload": {"$ref": "#/components/schemas/Job"}},
        **{
            kind: {"summary": text, "payload": {"$ref": f"#/components/schemas/{kind}"}}
            for kind, text in _KINDS.items()
        },
        **{name: {**message, "contentType": "text/plain"} for name, message in plain.items()},
    }

"""The OpenAPI document, made from the structs that the API answers with."""

from __future__ import annotations

from typing import Any

import msgspec

from worker.dashboard import call_records, people_records, records, session_records
from worker.dashboard.series import WINDOWS
from worker.version import version_of_product

_NAME = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"}
_TIME = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string"}
_QUEUE = ("queue", _NAME, "The queue; the first one watched where left out.")

_Query = tuple[tuple[str, dict[str, Any], str], ...]
_SEARCH: _Query = (
    _QUEUE,
    ("text", _TEXT, "Part of a session's or call's id, of a command or path, or of a rule."),
    ("session", _NAME, "A session."),
    ("tool", _TEXT, "A tool."),
    ("status", _TEXT, "queued, completed, denied, failed, or an error code."),
    ("since_ms", _TIME, "Not before this Unix time in ms."),
    ("until_ms", _TIME, "Not after this Unix time in ms."),
    ("before", _TEXT, "Go on from the `more` of an earlier answer."),
)
_LOOK: dict[str, tuple[str, type, _Query]] = {
    "/api/queues": (
        "Queues, how they do, and the series of one of them",
        records.Overview,
        (_QUEUE, ("window", {"enum": list(WINDOWS)}, "How far back the series goes.")),
    ),
    "/api/workers": ("Workers by their heartbeats", records.Workers, ()),
    "/api/running": ("Running calls, the longest first", call_records.Running, ()),
    "/api/calls": ("Search for calls, the latest first", call_records.Calls, _SEARCH),
    "/api/calls/{queue}/{session}/{call}": (
        "One call",
        call_records.Call,
        (("entry", _TEXT, "Its id in the audit stream, for one that ended long ago."),),
    ),
    "/api/sessions": (
        "Sessions of the latest calls",
        session_records.Sessions,
        (_QUEUE, ("before", _TEXT, "Go on from the `more` of an earlier answer.")),
    ),
    "/api/sessions/{queue}/{session}": ("One session", session_records.Session, ()),
    "/api/plans": ("Plans and calls that wait for approval", session_records.Plans, ()),
    "/api/failures": ("Denials and failures by cause", session_records.Failures, ()),
    "/api/me": ("Who asks, and what they may do", people_records.Me, ()),
}
_ACT: dict[str, tuple[str, type]] = {
    "/api/calls/{queue}/{session}/{call}/cancel": (
        "Ask for the end of a call (role operator)",
        people_records.CancelBody,
    ),
    "/api/plans/{queue}/{session}/approve": ("Approve a plan (role approver)", people_records.JudgeBody),
    "/api/plans/{queue}/{session}/reject": ("Reject a plan, with a reason (role approver)", people_records.JudgeBody),
    "/api/asks/{queue}/{session}/approve": (
        "Let one call that asks run once (role approver)",
        people_records.JudgeBody,
    ),
    "/api/asks/{queue}/{session}/reject": (
        "Refuse a call that asks, with a reason (role approver)",
        people_records.JudgeBody,
    ),
}


def document() -> dict[str, Any]:
    """The whole document, OpenAPI 3.1."""
    kinds = (
        [kind for _, kind, _ in _LOOK.values()]
        + [kind for _, kind in _ACT.values()]
        + [people_records.Done, people_records.Fault]
    )
    _, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {}
    for path, (summary, kind, query) in _LOOK.items():
        paths[path] = {"get": _operation(path, summary, kind, query)}
    for path, (summary, body) in _ACT.items():
        operation = _operation(path, summary, people_records.Done, ())
        operation["requestBody"] = {"required": True, "content": _content(body)}
        paths[path] = {"post": operation}
    live = "One of the views queues, workers, running, calls, call, sessions, session, plans, failures, as events"
    paths["/api/live/{view}"] = {
        "get": {
            **_operation("/api/live/{view}", live, people_records.Fault, ()),
            "responses": {"200": {"description": "events view, lost, unknown", "content": {"text/event-stream": {}}}},
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "toolreef dashboard",
            "version": version_of_product(),
            "description": "Times are Unix time in ms by Redis' clock. Payloads are redacted.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(path: str, summary: str, kind: type, query: _Query) -> dict[str, Any]:
    in_path = [word[1:-1] for word in path.split("/") if word.startswith("{")]
    return {
        "summary": summary,
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": _NAME} for name in in_path),
            *({"name": name, "in": "query", "schema": schema, "description": text} for name, schema, text in query),
        ],
        "responses": {
            "200": {"description": summary, "content": _content(kind)},
            "default": {"description": "not answered", "content": _content(people_records.Fault)},
        },
    }


def _content(kind: type) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}

"""The contract for other languages and for models, made from the structs: what is checked is what is told.

python -m contracts.schemas DIRECTORY    writes every format into the directory
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from contracts.asyncapi import asyncapi
from contracts.calls import VERSION, Job
from contracts.plans import Approval, Plan
from contracts.replies import AnyReply
from contracts.tools import TOOLS, Effect, Tool

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def render(format: str) -> Schema:  # noqa: A002 (the word of the command line's option)
    """The contract in one of FORMATS, as a JSON object.

    Raises:
        ValueError: there is no such format; the message lists those that there are.
    """
    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}, the formats are: {', '.join(FORMATS)}")
    return FORMATS[format]()


def model_name(tool: str) -> str:
    """The tool's name where only letters, digits, `_` and `-` may stand, as in models' interfaces."""
    return tool.replace(".", "_")


def wire_name(name: str) -> str:
    """The tool's name on the wire, given that or its model's name.

    Raises:
        KeyError: there is no such tool.
    """
    return name if name in TOOLS else _WIRE_NAMES[name]


def standalone(shape: Any) -> Schema:
    """The JSON Schema of a type as one object with its own `$defs`, as tool definitions want it."""
    schema = msgspec.json.schema(shape)
    definitions = schema.pop("$defs", {})
    if "$ref" in schema:
        schema = definitions.pop(schema["$ref"].rpartition("/")[2])
    return {**schema, "$defs": definitions} if definitions else schema


def definitions(ref_template: str) -> dict[str, Schema]:
    """Every schema of the contract by name, the payload of each tool's job among them."""
    shapes = [AnyReply, Job, Plan, Approval, *(shape for tool in TOOLS.values() for shape in (tool.args, tool.output))]
    (reply, *_), components = msgspec.json.schema_components(shapes, ref_template=ref_template)
    components["Reply"] = reply
    components["Job"] = {
        "title": "Job",
        "description": "The payload of one call, in arq's layout. The session and the call are in the job's id alone.",
        "oneOf": [{"$ref": ref_template.format(name=_job_name(tool))} for tool in TOOLS.values()],
    }
    for tool in TOOLS.values():
        components[_job_name(tool)] = _job(tool, components["CallBody"], ref_template)
    del components["CallBody"]
    components["Completed"]["allOf"] = [
        {
            "if": {"properties": {"tool": {"const": tool.name}}},
            "then": {"properties": {"output": {"$ref": ref_template.format(name=tool.output.__name__)}}},
        }
        for tool in TOOLS.values()
    ]
    return dict(sorted(components.items()))


def _job_name(tool: Tool) -> str:
    return tool.args.__name__.removesuffix("Args") + "Job"


def _job(tool: Tool, body: Schema, ref_template: str) -> Schema:
    args = {"$ref": ref_template.format(name=tool.args.__name__)}
    call = {**body, "properties": {**body["properties"], "v": {"const": VERSION}, "args": args}}
    job = standalone(Job)
    return {
        **{word: job[word] for word in ("type", "required", "additionalProperties")},
        "title": _job_name(tool),
        "description": tool.description,
        "properties": {
            **job["properties"],
            "f": {"const": tool.name},
            "a": {"type": "array", "items": call, "minItems": 1, "maxItems": 1},
            "k": {"type": "object", "maxProperties": 0},
        },
    }


def _jsonschema() -> Schema:
    template = "#/$defs/{name}"
    return {
        "$schema": DIALECT,
        "$id": f"urn:toolreef:contract:{VERSION}",
        "title": "toolreef",
        "description": "Calls (Job), answers (Reply) and the tools' arguments and outputs.",
        "oneOf": [{"$ref": template.format(name=name)} for name in ("Job", "Reply")],
        "$defs": definitions(template),
        "x-tools": {
            tool.name: {
                "description": tool.description,
                "effect": tool.effect.value,
                "args": {"$ref": template.format(name=tool.args.__name__)},
                "output": {"$ref": template.format(name=tool.output.__name__)},
            }
            for tool in TOOLS.values()
        },
    }


def _openai() -> Schema:
    return {
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": model_name(tool.name),
                    "description": tool.description,
                    "parameters": standalone(tool.args),
                },
            }
            for tool in TOOLS.values()
        ],
        "x-wire-names": _WIRE_NAMES,
    }


def _anthropic() -> Schema:
    return {
        "tools": [
            {"name": model_name(tool.name), "description": tool.description, "input_schema": standalone(tool.args)}
            for tool in TOOLS.values()
        ],
        "x-wire-names": _WIRE_NAMES,
    }


def _mcp() -> Schema:
    return {
        "tools": [
            {
                "name": model_name(tool.name),
                "description": tool.description,
                "inputSchema": standalone(tool.args),
                "outputSchema": standalone(tool.output),
                "annotations": {
                    "readOnlyHint": tool.effect is Effect.READ,
                    "destructiveHint": tool.destructive,
                    "idempotentHint": tool.idempotent or tool.effect is Effect.READ,
                    "openWorldHint": False,
                },
                "_meta": {"toolreef/name": tool.name},
            }
            for tool in TOOLS.values()
        ]
    }


def _asyncapi() -> Schema:
    return asyncapi(definitions("#/components/schemas/{name}"))


FORMATS: dict[str, Callable[[], Schema]] = {
    "jsonschema": _jsonschema,
    "openai": _openai,
    "anthropic": _anthropic,
    "mcp": _mcp,
    "asyncapi": _asyncapi,
}

_WIRE_NAMES = {model_name(name): name for name in TOOLS}


def main(directory: str) -> None:
    """Writes `<format>.json` for every format into the directory."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    for name in FORMATS:
        text = json.dumps(render(name), indent=2, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

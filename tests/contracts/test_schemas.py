"""What other languages and models are told is what the decoders enforce."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from contracts.calls import JobId
from contracts.codec import decode_call
from contracts.schemas import FORMATS, definitions, model_name, render, wire_name
from contracts.tools import TOOLS
from tests.contracts import records

JOB = JobId("q", "s", "c")
CALLS = sorted(name for name in records.files() if name.endswith(".call.json"))
REPLIES = sorted(name for name in records.files() if name.endswith(".reply.json"))


def validator(definition: str) -> jsonschema.Draft202012Validator:
    whole = render("jsonschema")
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{definition}", "$defs": whole["$defs"]})


def references(node: Any) -> set[str]:
    if isinstance(node, dict):
        found = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return found.union(*(references(value) for value in node.values()))
    return set().union(*(references(value) for value in node)) if isinstance(node, list) else set()


def resolve(document: Any, reference: str) -> Any:
    for part in reference.removeprefix("#/").split("/"):
        document = document[part]
    return document


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_plain_json_and_the_same_each_time(name: str) -> None:
    assert json.loads(json.dumps(render(name))) == render(name)


def test_an_unknown_format_names_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="the formats are: jsonschema, openai, anthropic, mcp, asyncapi"):
        render("xml")


def test_the_json_schema_is_valid_and_complete() -> None:
    whole = render("jsonschema")
    jsonschema.Draft202012Validator.check_schema(whole)
    for reference in references(whole):
        assert resolve(whole, reference)
    assert set(whole["x-tools"]) == set(TOOLS)


@pytest.mark.parametrize("name", CALLS)
def test_calls_on_record_match_the_schema(name: str) -> None:
    validator("Job").validate(json.loads(records.files()[name]))


@pytest.mark.parametrize("name", REPLIES)
def test_replies_on_record_match_the_schema(name: str) -> None:
    validator("Reply").validate(json.loads(records.files()[name]))


@pytest.mark.parametrize(
    "change",
    [
        {"f": "read_files"},
        {"f": "write_file"},
        {"a": []},
        {"a": [{"v": 2, "args": {"path": "a"}}]},
        {"a": [{"v": 1, "args": {"path": "a"}}] * 2},
        {"a": [{"v": 1, "args": {"path": "a", "x": 1}}]},
        {"a": [{"v": 1, "args": {"path": "a", "offset": 0}}]},
        {"a": [{"v": 1, "args": {"path": "a"}, "priority": "high"}]},
        {"a": [{"v": 1, "args": {"path": "a"}, "deadline_ms": -1}]},
        {"k": {"x": 1}},
        {"et": "now"},
        {"x": 1},
    ],
)
def test_schema_and_decoder_refuse_the_same_calls(change: dict[str, Any]) -> None:
    job: dict[str, Any] = {"t": None, "f": "read_file", "a": [{"v": 1, "args": {"path": "a"}}], "k": {}, "et": 1}
    validator("Job").validate(job)
    decode_call(JOB, json.dumps(job).encode())
    changed = {**job, **change}
    assert not validator("Job").is_valid(changed)
    with pytest.raises(ValueError, match=r"."):
        decode_call(JOB, json.dumps(changed).encode())


def test_a_reply_with_another_tools_output_does_not_match() -> None:
    reply = json.loads(records.files()["read_file.reply.json"])
    assert not validator("Reply").is_valid({**reply, "tool": "run_command"})


@pytest.mark.parametrize("tool", sorted(TOOLS))
def test_tool_definitions_for_models_stand_alone(tool: str) -> None:
    args = json.loads(records.files()[f"{tool}.call.json"])["a"][0]["args"]
    output = json.loads(records.files()[f"{tool}.reply.json"])["output"]
    (openai,) = [t["function"] for t in render("openai")["tools"] if t["function"]["name"] == model_name(tool)]
    (anthropic,) = [t for t in render("anthropic")["tools"] if t["name"] == model_name(tool)]
    (mcp,) = [t for t in render("mcp")["tools"] if t["name"] == model_name(tool)]
    assert set(openai) == {"name", "description", "parameters"}
    assert set(anthropic) == {"name", "description", "input_schema"}
    assert mcp["_meta"] == {"toolreef/name": tool}
    for schema in (openai["parameters"], anthropic["input_schema"], mcp["inputSchema"]):
        assert (schema["type"], schema["additionalProperties"]) == ("object", False)
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.Draft202012Validator(schema).validate(args)
        assert not jsonschema.Draft202012Validator(schema).is_valid({**args, "x": 1})
    assert mcp["outputSchema"]["type"] == "object"
    jsonschema.Draft202012Validator(mcp["outputSchema"]).validate(output)


def test_names_for_models_are_names_that_models_take_and_lead_back() -> None:
    names = [tool["name"] for tool in render("mcp")["tools"]]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
    assert [wire_name(name) for name in names] == list(TOOLS)
    assert [wire_name(name) for name in TOOLS] == list(TOOLS)
    assert wire_name("plan_propose") == "plan.propose"
    for name in ("openai", "anthropic"):
        assert render(name)["x-wire-names"] == dict(zip(names, TOOLS, strict=True))
    with pytest.raises(KeyError):
        wire_name("plan-propose")


def test_mcp_hints_say_what_a_tool_may_do() -> None:
    hints = {tool["_meta"]["toolreef/name"]: tool["annotations"] for tool in render("mcp")["tools"]}
    words = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
    table = {name: tuple(hint[word] for word in words) for name, hint in hints.items()}
    assert {name: row for name, row in table.items() if not name.startswith("exec.")} == {
        "read_file": (True, False, True, False),
        "write_file": (False, True, True, False),
        "edit_file": (False, True, False, False),
        "list_directory": (True, False, True, False),
        "search_files": (True, False, True, False),
        "run_command": (False, True, False, False),
        "plan.propose": (False, False, False, False),
    }


def test_the_asyncapi_document_hangs_together() -> None:
    document = render("asyncapi")
    assert document["asyncapi"] == "3.0.0"
    assert set(document["info"]) >= {"title", "version"}
    for reference in references(document):
        assert resolve(document, reference)
    for channel in document["channels"].values():
        assert set(channel["parameters"]) == set(re.findall(r"\{(\w+)\}", channel["address"]))
        assert channel["messages"]
    for operation in document["operations"].values():
        assert operation["action"] in ("send", "receive")
        channel = operation["channel"]["$ref"]
        assert resolve(document, channel)
        assert all(message["$ref"].startswith(f"{channel}/messages/") for message in operation["messages"])
    assert set(document["components"]["schemas"]) == set(definitions("{name}"))
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    job = json.loads(records.files()["read_file.call.json"])
    jsonschema.Draft202012Validator(
        {"$ref": "#/components/schemas/Job", "components": document["components"]}
    ).validate(job)


def test_all_formats_are_written_as_files(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "contracts.schemas", str(tmp_path / "new")], check=True)
    written = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (tmp_path / "new").iterdir()}
    assert written == {name: render(name) for name in FORMATS}

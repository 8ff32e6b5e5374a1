"""The exact bytes on the wire: a change here is a change for every producer and reader in the field."""

from __future__ import annotations

import pytest

from contracts.calls import JobId
from contracts.codec import decode_call, decode_reply, encode
from contracts.replies import Completed, Progress
from contracts.tools import TOOLS, read_output
from tests.contracts import records

JOB = JobId("default", "s1", "c1")
NAMES = sorted(path.name for path in records.FOLDER.glob("*.json"))


def test_every_tool_has_a_call_and_a_reply() -> None:
    assert set(records.TOOLS) == set(TOOLS)
    assert sorted(records.files()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_bytes_are_those_on_record(name: str) -> None:
    assert records.files()[name] == (records.FOLDER / name).read_bytes()


@pytest.mark.parametrize("tool", sorted(TOOLS))
def test_a_call_on_record_is_read_back(tool: str) -> None:
    call, digest = decode_call(JOB, (records.FOLDER / f"{tool}.call.json").read_bytes())
    assert (call.session, call.call, call.tool, call.args) == ("s1", "c1", tool, records.TOOLS[tool][0])
    assert len(digest) == 32


@pytest.mark.parametrize("tool", sorted(TOOLS))
def test_a_reply_on_record_is_read_back(tool: str) -> None:
    reply = decode_reply((records.FOLDER / f"{tool}.reply.json").read_bytes())
    assert isinstance(reply, Completed)
    assert read_output(tool, reply.output) == records.TOOLS[tool][1]


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".reply.json")])
def test_a_reply_keeps_its_bytes_through_a_reader(name: str) -> None:
    data = (records.FOLDER / name).read_bytes()
    assert encode(decode_reply(data)) == data


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(".reply.json")])
def test_a_reply_from_a_newer_worker_is_read_without_its_new_fields(name: str) -> None:
    data = (records.FOLDER / name).read_bytes()
    newer = data[:-1] + b',"later":{"deep":[1]}}'
    assert decode_reply(newer) == decode_reply(data)


def test_the_kinds_of_replies_are_told_apart() -> None:
    kinds = {
        name: type(decode_reply((records.FOLDER / name).read_bytes())).__name__
        for name in ("progress.reply.json", "denied.reply.json", "failed.reply.json", "read_file.reply.json")
    }
    assert kinds == {
        "progress.reply.json": "Progress",
        "denied.reply.json": "Denied",
        "failed.reply.json": "Failed",
        "read_file.reply.json": "Completed",
    }
    assert isinstance(decode_reply((records.FOLDER / "progress.reply.json").read_bytes()), Progress)

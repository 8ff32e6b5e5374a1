"""What a workspace may hold: whoever fills it ends in that limit, and nobody else notices. Pushed to Redis as jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from contracts.replies import Completed
from tests.fleet import Agent, Fleet, wait_until

MIB = 1024**2
ALLOWED = 24 * MIB
NOTE = "which is more than it may"


@pytest.fixture
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    made = make_fleet(workspace_bytes=ALLOWED)
    made.start_worker()
    return made


def run(agent: Agent, command: str, **args: Any) -> tuple[int | None, list[str]]:
    output = agent.complete("run_command", command=command, **args)
    return output["exit_code"], output["limits_hit"]


@pytest.mark.parametrize(
    "filler",
    [
        "yes > file",
        "dd if=/dev/zero of=file bs=1M",
        "n=0; while :; do printf '%32768s' > small.$((n++)); done",
        "d=.; while :; do d=$d/d; mkdir $d; head -c 4M /dev/zero > $d/f; done",
        "mkdir closed; chmod 300 closed; yes > closed/file",
        "fallocate -l 200M file; sleep 60",
    ],
)
def test_who_fills_the_workspace_ends_in_its_limit_and_neighbours_are_answered(fleet: Fleet, filler: str) -> None:
    agent, neighbour = fleet.agent(), fleet.agent()
    agent.push("filler", "run_command", {"command": f"touch started; {filler}"})
    wait_until((agent.workspace / "started").exists, "the filler to run")
    assert neighbour.complete("run_command", command="echo here")["stdout"] == "here\n"
    neighbour.complete("write_file", path="file", content="here\n")
    (reply,) = fleet.wait_replies(agent.session, 1)
    output = reply["output"]
    assert (output["exit_code"], output["signal"], output["limits_hit"]) == (137, "KILL", ["workspace"])
    told = [note for note in output["notes"] if NOTE in note]
    assert len(told) == 1
    assert int(told[0].split()[3]) > ALLOWED
    assert neighbour.complete("read_file", path="file")["text"] == "here\n"


def test_what_takes_no_room_is_not_counted(fleet: Fleet) -> None:
    agent = fleet.agent()
    many_names = "head -c 16M /dev/zero > file; for i in 1 2 3 4 5 6; do ln file link.$i; done"
    assert run(agent, f"{many_names}; truncate -s 1G sparse; ln -s /usr usr; sleep 0.8") == (0, [])
    assert agent.complete("write_file", path="new", content="text")["created"]


def test_who_is_over_can_remove_and_not_add(fleet: Fleet) -> None:
    agent = fleet.agent()
    assert run(agent, "head -c 40M /dev/zero > file; sleep 60") == (137, ["workspace"])
    agent.workspace.joinpath("notes").write_text("one\ntwo\n")
    for _ in range(2):
        assert run(agent, "head -c 8M /dev/zero > more; sleep 60") == (137, ["workspace"])
        assert run(agent, "rm more; sleep 0.6; echo a > little") == (0, [])
    error = agent.fail("write_file", path="new", content="x" * 9000)
    assert (error.code, error.effect, error.retryable) == ("no_space", "none", True)
    assert error.message.startswith("new: 9000 bytes do not fit: the workspace holds ")
    assert error.message.endswith(f" of the {ALLOWED} bytes that it may; nothing was changed")
    assert not (agent.workspace / "new").exists()
    grown = {"path": "notes", "old_text": "two", "new_text": "2" * 9000}
    assert agent.fail("edit_file", grown).code == "no_space"
    assert (agent.workspace / "notes").read_text() == "one\ntwo\n"
    assert agent.complete("edit_file", path="notes", old_text="two\n", new_text="")["diff"]
    assert agent.complete("write_file", path="file", content="less")["bytes"] == 4
    assert agent.complete("write_file", path="new", content="x" * 9000)["created"]
    assert run(agent, "head -c 8M /dev/zero > more; sleep 0.6") == (0, [])


def test_files_that_are_written_add_up(fleet: Fleet) -> None:
    """Within one look's freshness, and with what replaces a file counted once."""
    agent = fleet.agent()
    size = 3 * MIB
    written = 0
    for number in range(20):
        reply = agent.call("write_file", path=f"f{number}", content="x" * size)
        if not isinstance(reply, Completed):
            assert reply.error is not None
            assert reply.error.code == "no_space"
            break
        written += size
    assert ALLOWED - 2 * size < written <= ALLOWED
    for _ in range(3):
        assert agent.complete("write_file", path="f0", content="y" * size)["bytes"] == size


def test_any_amount(make_fleet: Callable[..., Fleet]) -> None:
    fleet = make_fleet(workspace_bytes=0)
    fleet.start_worker()
    assert run(fleet.agent(), "head -c 64M /dev/zero > file; sleep 0.8") == (0, [])

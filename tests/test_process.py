"""Limits: whatever a command takes too much of ends it, is named, and leaves the worker as it was."""

from __future__ import annotations

import resource
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.tools import RunCommandOutput
from tests.walled import WALLS, Commands, Wall, walled
from worker.endings import signal_named
from worker.process import Limits
from worker.workspace import Workspace

MIB = 1024**2


@pytest.fixture(scope="module", params=WALLS)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    wall: Wall = request.param
    with walled(wall, tmp_path_factory.mktemp("shared")) as commands:
        yield commands


@pytest.fixture
def commands(shared: Commands, tmp_path: Path) -> Iterator[Commands]:
    """A workspace of its own behind the shared wall; afterwards the worker must still work."""
    with Workspace.open(str(tmp_path)) as workspace:
        yield Commands(workspace, shared.sandbox, Limits())
    assert shared.run("echo alive").stdout == "alive\n"


def ended(output: RunCommandOutput) -> tuple[int | None, str | None, list[str]]:
    return output.exit_code, output.signal, output.limits_hit


@pytest.mark.parametrize(
    "bomb",
    [
        "f() { f & f & }; f; sleep 20",
        "while :; do (setsid sleep 20 &); done",
        "for i in $(seq 200); do sleep 20 & done; wait",
    ],
)
def test_a_fork_bomb_ends_in_its_own_limit(commands: Commands, bomb: str) -> None:
    output = commands.run(bomb, limits=Limits(processes=40, wall_s=30))
    assert ended(output) == (137, "KILL", ["processes"])


@pytest.mark.skipif(not shutil.which("python3", path="/usr/bin:/usr/local/bin"), reason="no python3 for commands")
def test_threads_count_as_well(commands: Commands) -> None:
    script = "import threading, time\nfor _ in range(60): threading.Thread(target=time.sleep, args=(20,)).start()"
    output = commands.run(f"python3 -c '{script}'", limits=Limits(processes=40, wall_s=30))
    assert "processes" in output.limits_hit


def test_a_memory_hog_ends_in_its_own_limit(commands: Commands) -> None:
    output = commands.run("tail /dev/zero", limits=Limits(memory_bytes=64 * MIB, wall_s=30))
    assert output.limits_hit == ["memory"]
    assert output.exit_code in (137, 1)


def test_memory_is_counted_over_the_whole_tree(commands: Commands) -> None:
    hungry = "for i in 1 2 3 4; do python3 -c 'x = bytearray(30 << 20); import time; time.sleep(20)' & done; wait"
    output = commands.run(hungry, limits=Limits(memory_bytes=96 * MIB, wall_s=30))
    assert ended(output) == (137, "KILL", ["memory"])


def test_a_disk_filler_ends_in_its_own_limit(commands: Commands) -> None:
    output = commands.run("exec head -c 1G /dev/zero > big", limits=Limits(file_bytes=4 * MIB))
    assert ended(output) == (153, "XFSZ", ["file_size"])
    assert (commands.root / "big").stat().st_size == 4 * MIB


def test_a_disk_that_fills_up_ends_it(commands: Commands) -> None:
    more_than_there_is = 2**60
    output = commands.run("sleep 20", limits=Limits(disk_free_bytes=more_than_there_is, wall_s=30))
    assert ended(output) == (137, "KILL", ["disk"])


def test_cpu_time_is_counted_over_the_whole_tree(commands: Commands) -> None:
    output = commands.run("while :; do :; done & while :; do :; done", limits=Limits(cpu_s=0.5, wall_s=30))
    assert ended(output) == (137, "KILL", ["cpu"])


@pytest.mark.parametrize("flood", ["yes", "cat /dev/zero", "cat /dev/urandom"])
def test_a_flood_of_output_ends_in_its_own_limit_and_takes_no_memory(commands: Commands, flood: str) -> None:
    """P56."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    output = commands.run(flood, limits=Limits(output_total_bytes=150 * MIB, spill_bytes=2 * MIB, wall_s=60))
    assert ended(output) == (137, "KILL", ["output"])
    assert output.omitted_bytes is not None
    assert output.omitted_bytes["stdout"] > 149 * MIB
    assert output.spill is not None
    assert (commands.root / output.spill).stat().st_size == 2 * MIB
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024


def test_what_is_read_slowly_is_counted_to_the_last_byte(commands: Commands) -> None:
    """Behind the first 256 MiB of a stream."""
    total = 300 * MIB
    output = commands.run(f"yes | head -c {total}; echo end >&2", limits=Limits(spill_bytes=MIB, wall_s=60))
    assert (output.exit_code, output.stderr, output.limits_hit) == (0, "end\n", [])
    assert output.omitted_bytes == {"stdout": total - Limits().output_bytes}


def test_a_time_out_comes_on_time_under_a_flood(commands: Commands) -> None:
    """P56."""
    failure = commands.fail("yes", "timeout", timeout_s=0.5)
    assert isinstance(failure.output, RunCommandOutput)
    assert failure.output.stdout.startswith("y\ny\n")
    assert failure.output.limits_hit == ["wall"]
    assert failure.output.duration_ms < 10_000


def test_what_the_kernel_does_not_let_go_is_given_up(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that waits for a dead disk can't be killed; the call is answered all the same."""
    monkeypatch.setattr("worker.slots.Slot.kill", lambda _: None)
    monkeypatch.setattr("worker.process._UNKILLABLE_S", 0.2)
    failure = commands.fail("sleep 300", "unavailable", timeout_s=0.2)
    assert failure.effect == "unknown"
    assert "can't be ended" in str(failure)


def test_open_files_are_limited(commands: Commands) -> None:
    assert commands.run("ulimit -n -c", limits=Limits(open_files=64)).stdout.split()[-1] == "0"
    assert "64" in commands.run("ulimit -n", limits=Limits(open_files=64)).stdout


def test_limits_of_one_call_do_not_stay_for_the_next(commands: Commands) -> None:
    assert commands.run("ulimit -f", limits=Limits(file_bytes=4 * MIB)).stdout == "4096\n"
    assert commands.run("ulimit -f").stdout == "2097152\n"


def test_a_full_disk_costs_the_spill_and_not_the_answer(commands: Commands) -> None:
    (commands.root / ".toolreef").write_text("in the way")
    output = commands.run("seq 1 100000")
    assert (output.exit_code, output.spill, output.truncated) == (0, None, True)
    assert output.stdout.endswith("\n100000\n")


def test_a_spill_never_leaves_the_workspace(commands: Commands) -> None:
    with tempfile.TemporaryDirectory() as elsewhere:
        (commands.root / ".toolreef").symlink_to(elsewhere)
        output = commands.run("seq 1 100000")
        assert (output.exit_code, output.spill) == (0, None)
        assert list(Path(elsewhere).iterdir()) == []


def test_spills_of_both_streams_have_every_byte(commands: Commands) -> None:
    output = commands.run("seq 1 200000; seq 200000 -1 1 >&2", limits=Limits(output_bytes=1000))
    spills = sorted((commands.root / ".toolreef/spill").iterdir())
    assert [len(path.read_bytes().splitlines()) for path in spills] == [200000, 200000]
    assert len(output.stdout) < 1200
    assert len(output.stderr) < 1200


@pytest.mark.parametrize("code, name", [(0, None), (128, None), (130, "INT"), (137, "KILL"), (255, None), (300, None)])
def test_signals_have_names(code: int, name: str | None) -> None:
    assert signal_named(code) == name

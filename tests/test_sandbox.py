"""The wall itself: how it is chosen, what is read-only, and that nothing outlives its worker."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks.container import inside
from tests.walled import WALLS, Commands, Wall, alive, open_wall, walled
from worker import bubblewrap, jail, landlock, seccomp
from worker.failures import CallFailed
from worker.process import Limits
from worker.sandbox import REMEDY, Sandbox, SandboxUnavailable, describe, detect
from worker.slots import LauncherFailed, Slots
from worker.workspace import Workspace


@pytest.fixture(params=WALLS)
def wall(request: pytest.FixtureRequest) -> Wall:
    found: Wall = request.param
    return found


def test_the_strongest_tier_is_taken() -> None:
    sandbox = detect("prefer")
    sandbox.close()
    works = {found.what: found.ok for found in describe()}
    best = next((name for name in ("bwrap", "landlock") if works[f"sandbox {name}"]), None)
    assert sandbox.tier == (f"{best}+seccomp" if best else "none")


def test_require_refuses_and_says_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "candidates", list)
    monkeypatch.setattr(landlock, "abi", lambda: 3)
    with pytest.raises(SandboxUnavailable) as caught:
        detect("require")
    assert str(caught.value) == (
        "commands can't be walled in: bwrap: not installed; landlock_create_ruleset: ABI 3, 4 is needed; " + REMEDY
    )


def test_prefer_goes_on_without_and_says_so_loudly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bubblewrap, "candidates", list)
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    sandbox = detect("prefer")
    sandbox.slots.give_back(sandbox.take())
    sandbox.slots.give_back(sandbox.take())
    sandbox.close()
    assert sandbox.tier == "none"
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]
    assert "bwrap: not installed" in caplog.text


def test_a_wall_that_does_not_hold_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The self-test judges what happens, not what was set up."""
    monkeypatch.setattr("worker.sandbox._plans", lambda *_: [("landlock", {"tier": "none", "bash": "/bin/bash"})])
    with pytest.raises(SandboxUnavailable, match="self-test: wrote outside"):
        detect("require")


def test_in_a_container_bubblewrap_says_why_it_does_not_start() -> None:
    def refused() -> dict[str, str]:
        try:
            detect("require", tiers=("bwrap",)).close()
        except SandboxUnavailable as error:
            return {"said": str(error)}
        return {"said": "it works"}

    try:
        said = inside(refused)["said"]
    except FileNotFoundError as error:
        pytest.skip(str(error))
    assert said.startswith("commands can't be walled in: bwrap: self-test: bwrap: ")
    assert "namespace" in said
    assert said.endswith(REMEDY)


def test_a_read_only_workspace_and_further_directories(wall: Wall, tmp_path: Path) -> None:
    if wall == "none":
        pytest.skip("there is no wall")
    extra, workspace = tmp_path / "extra", tmp_path / "workspace"
    for directory in (extra, workspace):
        directory.mkdir()
        (directory / "file").write_text("text\n")
    sandbox = open_wall(wall, read_only=(str(extra),))
    with Workspace.open(str(workspace)) as opened:
        commands = Commands(opened, sandbox, Limits())
        output = commands.run(f"cat {extra}/file; echo x > {extra}/new; echo x > {extra}/file")
        assert (output.stdout, output.exit_code) == ("text\n", 1)
        context = commands.context(writable=False)
        output = asyncio.run(
            commands.start("cat file; echo x > new; rm file; mkdir d; echo x > file; ln -s a b", context=context)
        )
        assert output.stdout == "text\n"
        assert sorted(path.name for path in workspace.iterdir() if path.name != ".toolreef") == ["file"]
        assert (workspace / "file").read_text() == "text\n"
    sandbox.close()
    assert sorted(path.name for path in extra.iterdir()) == ["file"]


_WORKER = """
import asyncio, sys
from tests.walled import open_wall, Commands
from worker.failures import CallFailed
from worker.process import Limits
from worker.workspace import Workspace
with Workspace.open(sys.argv[2]) as workspace:
    commands = Commands(workspace, open_wall(sys.argv[1]), Limits())
    print("ready", flush=True)
    commands.run(sys.argv[3])
"""


def test_commands_die_with_their_worker(wall: Wall, tmp_path: Path) -> None:
    marker = f"reef-orphan-{time.monotonic_ns()}"
    daemon = f'trap "" TERM HUP; echo > started; while :; do : {marker}; sleep 0.05; done'
    script = f"setsid bash -c '{daemon}' & : {marker}; wait"
    worker = subprocess.Popen(
        [sys.executable, "-c", _WORKER, wall, str(tmp_path), script],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parent.parent,
    )
    assert worker.stdout is not None
    if worker.stdout.readline() != b"ready\n":
        pytest.skip("the host does not offer it")
    wait_until((tmp_path / "started").exists)
    assert len(alive(marker)) >= 2
    worker.kill()
    worker.wait()
    worker.stdout.close()
    wait_until(lambda: alive(marker) == [])


def test_commands_die_with_their_runner(wall: Wall, tmp_path: Path) -> None:
    """The zygote ends what comes up from a runner that was killed, and the next command runs."""
    marker = f"reef-orphan-{time.monotonic_ns()}"
    with walled(wall, tmp_path) as commands:
        process = commands.sandbox.slots._process
        assert process is not None
        assert commands.run("true").exit_code == 0
        runner = children_of(process.pid)
        script = f"setsid bash -c ': {marker}; sleep 300' & echo > started; : {marker}; wait"

        def kill() -> None:
            wait_until((tmp_path / "started").exists)
            for pid in runner:
                os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        failure = commands.fail(script, "unavailable")
        killer.join()
        assert "runner is gone" in str(failure)
        wait_until(lambda: alive(marker) == [])
        assert commands.run("echo alive").stdout == "alive\n"


def test_a_launcher_that_was_killed_is_started_again(wall: Wall, tmp_path: Path) -> None:
    with walled(wall, tmp_path) as commands:
        process = commands.sandbox.slots._process
        assert process is not None
        assert commands.run("true").exit_code == 0
        for pid in (process.pid, *children_of(process.pid)):
            os.kill(pid, signal.SIGKILL)
        process.wait()
        wait_until(lambda: ends_well(commands))
        assert commands.run("echo alive").stdout == "alive\n"


def ends_well(commands: Commands) -> bool:
    """Whether a command runs; those on slots of the dead launcher may fail, each once."""
    try:
        return commands.run("true").exit_code == 0
    except CallFailed:
        return False


def test_nothing_is_left_when_it_is_closed(wall: Wall, tmp_path: Path) -> None:
    with walled(wall, tmp_path) as commands:
        process = commands.sandbox.slots._process
        assert process is not None
        pids = [process.pid]
        commands.run("true")
        pids += children_of(process.pid)
    assert len(pids) == 2
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert [path for path in Path("/dev/shm").glob("toolreef-etc-*") if is_held_by_nobody(path)] == []


def is_held_by_nobody(path: Path) -> bool:
    """Whether a copy of /etc was left behind; other launchers of this host hold theirs."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return path.exists()


def test_a_shell_that_is_missing_is_named(tmp_path: Path) -> None:
    with Workspace.open(str(tmp_path)) as workspace:
        sandbox = Sandbox("none", Slots({"tier": "none", "bash": "/nowhere/bash"}), wanted=False)
        failure = Commands(workspace, sandbox, Limits()).fail("true", "unavailable")
        sandbox.close()
    assert str(failure) == "the command could not be started: /nowhere/bash: No such file or directory"
    assert failure.effect == "none"


def test_a_plan_that_nobody_knows_is_refused() -> None:
    with pytest.raises(LauncherFailed, match="the launcher does not start"):
        Slots({"tier": "bwrap"})


class Machine:
    """Runs a filter as the kernel would, for machines that this host is not."""

    def __init__(self, program: bytes, arch: int) -> None:
        self.steps = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
        self.arch = arch

    def judge(self, number: int, *arguments: int) -> int:
        """The errno that a call is answered with; 0 where it is allowed."""
        data = struct.pack("<iIQ6Q", number, self.arch, 0, *arguments, *[0] * (6 - len(arguments)))
        at = value = 0
        while True:
            code, yes, no, k = self.steps[at]
            at += 1
            if code == 0x20:
                value = struct.unpack_from("<I", data, k)[0]
            elif code == 0x54:
                value &= k
            elif code in (0x15, 0x35, 0x45):
                taken = {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}[code]
                at += yes if taken else no
            else:
                assert code == 0x06
                return 0 if k == 0x7FFF0000 else k & 0xFFFF


@pytest.mark.parametrize("machine, arch", [("x86_64", 0xC000003E), ("aarch64", 0xC00000B7)])
@pytest.mark.parametrize("tcp", [True, False])
def test_the_filter_on_both_machines(machine: str, arch: int, tcp: bool) -> None:
    filter_ = Machine(seccomp.assemble(tcp=tcp, system_v=tcp, machine=machine), arch)
    calls = seccomp.CALLS[machine]
    eperm, eacces, enosys = 1, 13, 38
    by_argument = {"ioctl", "socket", "socketpair", "clone", "clone3"}
    for name, number in calls.items():
        if name not in by_argument:
            allowed = name in seccomp.SYSTEM_V and tcp
            assert filter_.judge(number) == (0 if allowed else eperm), name
    assert filter_.judge(calls["clone3"]) == enosys
    assert filter_.judge(calls["clone"], 17) == 0
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert filter_.judge(calls["clone"], flag | 17) == eperm
    assert [filter_.judge(calls["ioctl"], 0, request) for request in (0x5412, 0x541C, 0x5401)] == [eperm, eperm, 0]
    inet, stream, datagram, raw, cloexec = 2, 1, 2, 3, 0o2000000
    assert filter_.judge(calls["socket"], inet, stream | cloexec, 6) == (0 if tcp else eacces)
    for arguments in (
        (inet, datagram),
        (inet, raw),
        (inet, stream, 262),
        (1, stream),
        (16, raw),
        (17, raw),
        (40, stream),
    ):
        assert filter_.judge(calls["socket"], *arguments) == eacces
    assert [filter_.judge(calls["socketpair"], 1, kind | cloexec) for kind in (1, 2, 5)] == [0, eacces, 0]
    assert filter_.judge(0) == 0
    other = Machine(seccomp.assemble(tcp=tcp, system_v=tcp, machine=machine), 0x40000003)
    assert other.judge(calls["ioctl"]) == enosys
    if machine == "x86_64":
        assert filter_.judge(0x40000000 | 41, 1, 1) == enosys


def test_the_filter_is_refused_for_other_machines() -> None:
    with pytest.raises(seccomp.Unsupported, match="riscv64"):
        seccomp.assemble(tcp=False, system_v=False, machine="riscv64")


def test_scripts_over_the_kernels_limit_are_not_arguments() -> None:
    assert jail.INLINE_BYTES < 128 * 1024


def test_copies_of_etc_that_nobody_holds_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "_COPY_HOMES", (str(tmp_path),))
    first, descriptor = bubblewrap.copy_etc()
    second, other = bubblewrap.copy_etc()
    assert {first, second} == {str(path) for path in tmp_path.iterdir()}
    assert (Path(first) / "passwd").read_bytes() == Path("/etc/passwd").read_bytes()
    assert not (Path(first) / "shadow").exists()
    os.close(descriptor)
    third, last = bubblewrap.copy_etc()
    assert {second, third} == {str(path) for path in tmp_path.iterdir()}
    os.close(other)
    os.close(last)


def wait_until(happens: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Until it does; an AssertionError when it takes too long."""
    deadline = time.monotonic() + timeout_s
    while not happens():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def children_of(parent: int) -> list[int]:
    """Pids, by /proc."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            if int(text.rpartition(")")[2].split()[1]) == parent:
                found.append(int(entry.name))
    return found


def test_probes_are_json() -> None:
    found = json.loads(json.dumps([each._asdict() for each in describe()]))
    assert [each["what"] for each in found] == [
        "bash", "user namespaces", "bubblewrap", "Landlock", "seccomp", "limits", "sandbox bwrap", "sandbox landlock",
        "sandbox",
    ]  # fmt: skip
    assert all(each["ok"] or each["remedy"] for each in found)

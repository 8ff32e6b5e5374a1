"""Cgroups of version 2: whose they are, what is written into them, and what the kernel makes of it.

Three kinds of test: on plain directories, what is read and written; in a real hierarchy without controllers, where one
is mounted for us to write, who is inside and how all of it ends; with delegated controllers, the limits themselves.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from contracts import keys
from tests.fleet import Fleet
from tests.test_sandbox import wait_until
from tests.walled import WALLS, Commands, Wall, alive, open_wall
from worker import delegation
from worker.cgroups import Cgroup, Delegated, sweep
from worker.delegation import NotDelegated, claim, find
from worker.process import Limits
from worker.sandbox import Sandbox, detect
from worker.slots import Slots
from worker.workspace import Workspace

MIB = 1024**2
FILES = ("cgroup.procs", "cgroup.subtree_control", "cgroup.controllers", "cgroup.type")


class Host:
    """What /proc says of a host, over plain directories."""

    def __init__(self, root: Path, *, systemd: bool) -> None:
        self.proc, self.mount = root / "proc", root / "sys fs" / "cgroup"
        self.proc.mkdir()
        self.mount.mkdir(parents=True)
        self.systemd = root / "systemd"
        if systemd:
            self.systemd.mkdir()
        self.be("/", mounted="/")

    def be(self, own: str, *, mounted: str = "/") -> None:
        """This process is in the cgroup `own` of the hierarchy, of which `mounted` is mounted."""
        (self.proc / "cgroup").write_text(f"4:memory:/elsewhere\n0::{own}\n")
        place = str(self.mount).replace(" ", "\\040")
        (self.proc / "mountinfo").write_text(
            "23 1 8:1 / / rw,relatime - ext4 /dev/sda rw\n"
            f"38 31 0:28 {mounted} {place} rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
        )

    def make(self, path: str, controllers: str, *, delegated: bool = False) -> str:
        """A cgroup's directory."""
        made = self.mount / path
        made.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (made / name).touch()
        (made / "cgroup.controllers").write_text(controllers + "\n")
        if delegated:
            os.setxattr(made, "user.delegate", b"1")
        return str(made)

    def find(self) -> Delegated:
        """As a worker of this host would."""
        return find(str(self.proc))

    def refuse(self) -> str:
        """Why a worker of this host is limited by rlimits."""
        with pytest.raises(NotDelegated) as caught:
            self.find()
        return str(caught.value).replace(str(self.mount), "/cg")


@pytest.fixture(params=[True, False], ids=["systemd", "no systemd"])
def host(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path, systemd=request.param)
    monkeypatch.setattr(delegation, "_SYSTEMD", str(made.systemd))
    return made


def test_a_container_whose_cgroup_is_mounted_to_be_written(host: Host) -> None:
    whole = host.make("", "cpuset cpu io memory pids")
    assert host.find() == Delegated(whole, ("memory", "pids"))
    host.be("/docker/abc", mounted="/docker/abc")
    assert host.find() == Delegated(whole, ("memory", "pids"))
    host.make("toolreef.workers", "memory pids")
    host.be("/toolreef.workers")
    assert host.find() == Delegated(whole, ("memory", "pids")), "a process that starts again beside others"


def test_a_unit_with_a_delegated_cgroup(host: Host) -> None:
    host.make("", "memory pids cpu")
    host.make("system.slice", "memory pids")
    unit = host.make("system.slice/t.service", "pids", delegated=True)
    host.be("/system.slice/t.service")
    assert host.find() == Delegated(unit, ("pids",))
    host.make("system.slice/t.service/toolreef.workers", "pids")
    host.be("/system.slice/t.service/toolreef.workers")
    assert host.find() == Delegated(unit, ("pids",))


def test_a_unit_that_keeps_its_processes_in_a_subgroup(host: Host) -> None:
    unit = host.make("system.slice/t.service", "memory pids", delegated=True)
    host.make("system.slice/t.service/main", "")
    host.be("/system.slice/t.service/main")
    assert host.find() == Delegated(unit, ("memory", "pids"))


def test_what_systemd_has_not_delegated_is_left_alone(host: Host) -> None:
    """Even where we could write: of root every file is."""
    host.make("", "memory pids")
    host.make("system.slice", "memory pids")
    unit = host.make("system.slice/t.service", "memory pids")
    host.be("/system.slice/t.service")
    if host.systemd.exists():
        assert (
            host.refuse() == "the cgroup at /cg/system.slice/t.service is not delegated: getxattr user.delegate: none"
        )
        host.make("init.scope", "memory pids")
        host.be("/init.scope")
        assert "init.scope is not delegated" in host.refuse()
    else:
        assert host.find() == Delegated(unit, ("memory", "pids"))


def test_a_hierarchy_whose_controllers_are_version_1s(host: Host) -> None:
    host.make("", "hugetlb")
    assert host.refuse() == "the cgroup at /cg has neither memory nor pids in cgroup.controllers"


def test_a_cgroup_that_is_not_ours_to_write(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.make("", "memory pids")
    (host.mount / "cgroup.procs").unlink()
    assert host.refuse() == "the cgroup at /cg is not delegated: open cgroup.procs: No such file or directory"


def test_hosts_without_version_2(host: Host) -> None:
    (host.proc / "cgroup").write_text("4:memory:/\n")
    assert host.refuse() == "the kernel has no cgroups of version 2"
    host.be("/somewhere/else", mounted="/docker/abc")
    assert host.refuse() == "no cgroup2 mount shows /somewhere/else"
    host.be("/../../outside")
    assert host.refuse() == "no cgroup2 mount shows /../../outside"


def test_what_is_written_and_read(tmp_path: Path) -> None:
    cgroup = Cgroup(Delegated(str(tmp_path), ("memory", "pids")))
    made = Path(cgroup.path)
    for name in ("memory.max", "memory.oom.group", "pids.max", "cgroup.procs"):
        (made / name).touch()
    cgroup.enter()
    cgroup.limit(memory_bytes=123 * MIB, processes=7)
    written = {path.name: path.read_text() for path in made.iterdir()}
    assert written == {
        "cgroup.procs": "0", "memory.max": str(123 * MIB), "memory.oom.group": "1", "pids.max": "7",
    }  # fmt: skip
    assert (cgroup.hit(), cgroup.cpu_s(), cgroup.peak_bytes(), cgroup.kill()) == (None, 0.0, 0, False)
    (made / "memory.events").write_text("low 0\nhigh 0\nmax 44\noom 0\noom_kill 0\noom_group_kill 0\n")
    (made / "pids.events").write_text("max 0\n")
    (made / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (made / "memory.peak").write_text("4096\n")
    assert (cgroup.hit(), cgroup.cpu_s(), cgroup.peak_bytes()) == (None, 2.5, 4096)
    (made / "pids.events").write_text("max 3\n")
    assert cgroup.hit() == "processes"
    (made / "memory.events").write_text("low 0\nhigh 0\nmax 44\noom 1\noom_kill 1\noom_group_kill 1\n")
    assert cgroup.hit() == "memory"
    shutil.rmtree(made)
    cgroup.close()


def test_a_controller_that_is_not_offered_is_not_asked_for(tmp_path: Path) -> None:
    cgroup = Cgroup(Delegated(str(tmp_path), ("pids",)))
    (Path(cgroup.path) / "pids.max").touch()
    cgroup.limit(memory_bytes=MIB, processes=3)
    (Path(cgroup.path) / "pids.max").unlink()
    with pytest.raises(OSError, match=r"open pids\.max: No such file or directory"):
        cgroup.limit(memory_bytes=MIB, processes=3)
    cgroup.close()


def test_only_what_nobody_holds_is_swept(tmp_path: Path) -> None:
    held = Cgroup(Delegated(str(tmp_path), ()))
    (tmp_path / "toolreef.job.0123").mkdir()
    (tmp_path / "toolreef.job.4567" / "deeper").mkdir(parents=True)
    (tmp_path / "toolreef.workers").mkdir()
    assert sweep(str(tmp_path)) == 2
    assert {path.name for path in tmp_path.iterdir()} == {Path(held.path).name, "toolreef.workers"}
    held.close()
    assert {path.name for path in tmp_path.iterdir()} == {"toolreef.workers"}


def test_where_none_can_be_made_commands_run_and_it_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gone = tmp_path / "gone"
    with commands_in(Delegated(str(gone), ("memory",)), "none", tmp_path / "ws") as commands:
        assert commands.run("echo alive").stdout == "alive\n"
    assert f"without a cgroup of its own: mkdir {gone}/toolreef.job." in caplog.text


def test_a_command_that_can_not_be_put_in_does_not_run(tmp_path: Path) -> None:
    """A directory without the kernel's files: nothing runs without the limits that were promised."""
    with commands_in(Delegated(str(tmp_path), ("memory", "pids")), "none", tmp_path / "ws") as commands:
        failure = commands.fail("touch ran", "unavailable")
        assert str(failure) == "the command could not be started: open cgroup.procs: No such file or directory"
        assert list((tmp_path / "ws").glob("ran")) == []


def test_a_cgroup_that_can_not_be_used_is_found_out_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.sandbox.claim", lambda: Delegated(str(tmp_path), ("memory", "pids")))
    sandbox = detect("off", divide_cgroup=True)
    sandbox.close()
    assert sandbox.limits == "rlimits: open cgroup.procs: No such file or directory"
    assert list(tmp_path.iterdir()) == []


class commands_in:  # noqa: N801 - used as a function
    """Commands of one tier, each in a cgroup of its own below the given one."""

    def __init__(self, delegated: Delegated, wall: Wall, workspace: Path) -> None:
        self.sandbox = open_wall(wall)
        plan, tier = self.sandbox.slots._plan, self.sandbox.tier
        self.sandbox.close()
        slots = Slots({**plan, "cgroup": delegated.path, "controllers": delegated.controllers})
        self.sandbox = Sandbox(tier, slots, wanted=False)
        self.workspace = Workspace.open(str(workspace))

    def __enter__(self) -> Commands:
        return Commands(self.workspace, self.sandbox, Limits())

    def __exit__(self, *_: object) -> None:
        self.sandbox.close()
        self.workspace.close()


@pytest.fixture(params=WALLS)
def wall(request: pytest.FixtureRequest) -> Wall:
    found: Wall = request.param
    return found


@pytest.fixture
def real(request: pytest.FixtureRequest) -> Iterator[Delegated]:
    """A real cgroup of our own, with the controllers that can be had; the test is skipped where we may make none."""
    try:
        base = claim()
    except NotDelegated as problem:
        # The mount of a hybrid host, where version 1 has the controllers.
        own = Path("/sys/fs/cgroup/unified")
        if not os.access(own / "cgroup.procs", os.W_OK) or os.path.isdir("/run/systemd/system"):
            pytest.skip(str(problem))
        base = Delegated(str(own), ())
    made = Path(base.path) / f"toolreef-test-{os.getpid()}"
    made.mkdir()
    for name in base.controllers:
        (made / "cgroup.subtree_control").write_text(f"+{name}")
    yield Delegated(str(made), base.controllers)
    made.rmdir()


@pytest.fixture
def commands(real: Delegated, wall: Wall, tmp_path: Path) -> Iterator[Commands]:
    """Behind each wall; afterwards nothing of them may be left."""
    with commands_in(real, wall, tmp_path) as made:
        yield made
        assert made.run("echo alive").stdout == "alive\n"
    wait_until(lambda: jobs(real) == [])


def jobs(delegated: Delegated) -> list[Path]:
    """The cgroups of commands that run, or wait to."""
    return list(Path(delegated.path).glob("toolreef.job.*"))


def inside(cgroup: Path) -> set[int]:
    """The processes in there."""
    try:
        return {int(pid) for pid in (cgroup / "cgroup.procs").read_text().split()}
    except OSError:
        return set()


def test_all_of_a_command_is_in_its_cgroup_from_the_start(commands: Commands, real: Delegated, wall: Wall) -> None:
    marker = f"reef-cgroup-{os.getpid()}"
    seen: list[tuple[set[int], set[int]]] = []

    def look() -> None:
        wait_until((commands.root / "started").exists)
        seen.append((set(alive(marker)), next(inside(job) for job in jobs(real) if len(inside(job)) > 1)))
        (commands.root / "go").touch()

    looking = threading.Thread(target=look)
    looking.start()
    daemon = f"setsid bash -c ': {marker}; sleep 60' & sleep 60 & : {marker}; touch started"
    output = commands.run(f"{daemon}; until [ -e go ]; do sleep 0.01; done")
    looking.join()
    marked, members = seen[0]
    assert marked
    assert marked <= members
    assert output.exit_code == 0
    if wall == "none":
        first = commands.run("cat /proc/self/cgroup").stdout
        assert Path(real.path).name + "/toolreef.job." in first


@pytest.mark.parametrize("clone3", [True, False])
def test_a_child_is_made_in_there_or_moves_in(real: Delegated, monkeypatch: pytest.MonkeyPatch, clone3: bool) -> None:
    """A number that no system call has stands for the profiles that refuse clone3."""
    if not clone3:
        monkeypatch.setattr("worker.cgroups._CLONE3", 9999)
    cgroup = Cgroup(real)
    read_end, write_end = os.pipe()
    pid = cgroup.fork()
    if pid == 0:
        before = cgroup._is_inside
        cgroup.enter()
        os.write(write_end, f"{before} {os.getpid()} {Path('/proc/self/cgroup').read_text()}".encode())
        os._exit(7)
    os.close(write_end)
    with os.fdopen(read_end) as file:
        said, own, where = file.read().split(" ", 2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert (said, int(own)) == (str(clone3), pid)
    assert f"0::{cgroup.path.removeprefix(mount_of(real))}\n" in where
    cgroup.close()


def mount_of(delegated: Delegated) -> str:
    """Where the hierarchy is mounted."""
    path = Path(delegated.path)
    while not path.is_mount():
        path = path.parent
    return str(path)


def test_nothing_slips_through_the_end_of_it(commands: Commands) -> None:
    marker = f"reef-slips-{os.getpid()}"
    commands.fail(f"while :; do (setsid bash -c ': {marker}; sleep 60' &); done", "timeout", timeout_s=0.5)
    assert alive(marker) == []


def test_what_a_dead_launcher_left_is_swept(commands: Commands, real: Delegated) -> None:
    assert commands.run("true").exit_code == 0
    left = Cgroup(real)
    os.close(left._fd)
    assert sweep(real.path) == 1
    assert not Path(left.path).exists()


def limited(real: Delegated, controller: str) -> None:
    if controller not in real.controllers:
        pytest.skip(f"{controller} is not delegated here")


def test_memory_that_no_process_shows_is_counted(commands: Commands, real: Delegated) -> None:
    """Held by a descriptor alone, which looking at processes does not find."""
    limited(real, "memory")
    hungry = "import os; os.posix_fallocate(os.memfd_create('x'), 0, 300 << 20)"
    output = commands.run(f'python3 -c "{hungry}"; sleep 20', limits=Limits(memory_bytes=100 * MIB, wall_s=60))
    assert (output.exit_code, output.signal, output.limits_hit) == (137, "KILL", ["memory"])


def test_a_memory_hog_ends_with_all_of_its_tree(commands: Commands, real: Delegated) -> None:
    limited(real, "memory")
    output = commands.run("sleep 60 & tail /dev/zero; sleep 60", limits=Limits(memory_bytes=64 * MIB, wall_s=60))
    assert (output.exit_code, output.signal, output.limits_hit) == (137, "KILL", ["memory"])
    assert output.notes == [f"it was seen to use {64 * MIB} bytes of memory"]


def test_caches_of_files_give_way(commands: Commands, real: Delegated) -> None:
    limited(real, "memory")
    output = commands.run("head -c 200M /dev/zero > big; cat big big > /dev/null", limits=Limits(memory_bytes=64 * MIB))
    assert (output.exit_code, output.limits_hit) == (0, [])


def test_a_fork_bomb_never_has_more_than_its_processes(commands: Commands, real: Delegated) -> None:
    limited(real, "pids")
    most = 0
    done = threading.Event()

    def look() -> None:
        nonlocal most
        while not done.is_set():
            most = max([most, *(len(inside(job)) for job in jobs(real))])

    looking = threading.Thread(target=look)
    looking.start()
    output = commands.run("f() { f & f & }; f; sleep 20", limits=Limits(processes=40, wall_s=60))
    done.set()
    looking.join()
    assert (output.exit_code, output.signal, output.limits_hit) == (137, "KILL", ["processes"])
    assert most <= 42


def test_workers_say_what_limits_their_commands(make_fleet: Callable[..., Fleet]) -> None:
    """Two processes beside each other divide the same cgroup."""
    fleet = make_fleet(command_memory_bytes=64 * MIB)
    fleet.start_supervisor(2)
    try:
        expected = claim().in_words()
    except NotDelegated as problem:
        expected = f"rlimits: {problem}"
    beats = fleet.redis.hgetall(keys.workers(fleet.queue)).values()
    assert [msgspec.json.decode(beat.split(b" ", 1)[1])["limits"] for beat in beats] == [expected] * 2
    agent, neighbour = fleet.agent(), fleet.agent()
    agent.push("hog", "run_command", {"command": "touch started; tail /dev/zero"})
    wait_until((agent.workspace / "started").exists)
    assert neighbour.complete("run_command", command="echo here")["stdout"] == "here\n"
    (reply,) = fleet.wait_replies(agent.session, 1)
    assert reply["output"]["limits_hit"] == ["memory"]

"""A command's temporary files where it has no /tmp of its own: gone with it, or with the next opening."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.conftest import as_nobody, give_to_nobody
from tests.walled import Commands, Wall, walled
from worker.workspace import Workspace
from worker.workspace.removal import remove_tree


@pytest.fixture(params=["landlock", "none"])
def commands(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Commands]:
    wall: Wall = request.param
    with walled(wall, tmp_path / "ws") as made:
        yield made


def left(root: Path) -> list[str]:
    """What lies in the directory for temporary files, but for empty ones that the next command may get."""
    home = root / ".toolreef/tmp"
    return (
        sorted(entry.name for entry in home.iterdir() if not entry.is_dir() or any(entry.iterdir()))
        if home.exists()
        else []
    )


def test_each_command_has_a_directory_of_its_own_that_goes_with_it(commands: Commands) -> None:
    (commands.root / "kept").write_text("kept")
    output = commands.run(
        'mktemp; mkdir -p "$TMPDIR/a/b"; ln "$PWD/kept" "$TMPDIR/hard"; ln -s "$PWD" "$TMPDIR/a/link"; '
        'mkfifo "$TMPDIR/fifo"; chmod 000 "$TMPDIR/a"; ls -A .toolreef/tmp | wc -l; (sleep 60 > "$TMPDIR/open" &)'
    )
    made, count = output.stdout.split()
    assert made.startswith(f"{commands.root}/.toolreef/tmp/.toolreef-tmp.")
    assert count == "1"
    assert left(commands.root) == []
    assert (commands.root / "kept").read_text() == "kept"
    assert (commands.root / ".toolreef/.gitignore").read_text() == "*\n"


def test_an_empty_one_is_handed_on_and_goes_with_the_workspace(commands: Commands) -> None:
    first = commands.run("echo $TMPDIR").stdout
    assert commands.run('echo $TMPDIR; echo x > "$TMPDIR/x"').stdout == first
    other = commands.run('echo $TMPDIR; chmod 755 "$TMPDIR"').stdout
    assert other != first, "it went with what was in it"
    moved = commands.run('echo $TMPDIR; mv "$TMPDIR" elsewhere; mkdir "$TMPDIR"').stdout
    assert moved != other, "whoever opened it to all does not hand it on"
    last = commands.run("echo $TMPDIR").stdout
    assert last != moved, "another directory stands there"
    assert os.listdir(commands.root / ".toolreef/tmp") == [Path(last.strip()).name]
    commands.workspace.close()
    assert os.listdir(commands.root / ".toolreef/tmp") == []


def test_it_goes_after_a_time_out_as_well(commands: Commands) -> None:
    commands.fail('echo x > "$TMPDIR/x"; sleep 60', "timeout", timeout_s=0.3)
    assert left(commands.root) == []


def test_commands_side_by_side_do_not_see_each_other(commands: Commands) -> None:
    async def several() -> list[str]:
        script = 'echo {0} > "$TMPDIR/name"; sleep 0.3; cat "$TMPDIR/name"'
        outputs = await asyncio.gather(*(commands.start(script.format(number)) for number in range(5)))
        return [output.stdout for output in outputs]

    assert asyncio.run(several()) == [f"{number}\n" for number in range(5)]
    assert left(commands.root) == []


def test_a_command_that_moves_it_away_is_answered(commands: Commands) -> None:
    """What is left there it is the agent's to keep."""
    assert commands.run('mv "$TMPDIR" elsewhere; echo done').stdout == "done\n"
    assert commands.run("mv .toolreef/tmp aside; ln -s ../aside .toolreef/tmp; echo done").stdout == "done\n"
    assert commands.run('echo x > "$TMPDIR/x"; echo done').stdout == "done\n"
    assert (commands.root / "elsewhere").is_dir()


def test_read_only_commands_leave_nothing(commands: Commands) -> None:
    output = asyncio.run(commands.start("echo $TMPDIR", context=commands.context(writable=False)))
    assert output.stdout == f"{commands.root}\n"
    assert not (commands.root / ".toolreef").exists()


_DIES = """
import os, sys
from worker.workspace import Workspace
scratch = Workspace.open(sys.argv[1]).make_scratch()
made = os.path.join(sys.argv[1], os.fsdecode(scratch.path))
os.makedirs(made + "/a/b")
open(made + "/a/file", "w").close()
os.symlink(sys.argv[2], made + "/a/away")
print(made, flush=True)
sys.stdin.read()
os._exit(0)
"""


def test_what_a_dead_worker_left_is_swept_when_the_workspace_is_opened(tmp_path: Path) -> None:
    root, outside = tmp_path / "ws", tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    worker = subprocess.Popen(
        [sys.executable, "-c", _DIES, str(root), str(outside)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parent.parent,
        text=True,
    )
    assert worker.stdout is not None
    made = Path(worker.stdout.readline().strip())
    with Workspace.open(str(root)) as workspace:
        assert workspace.sweep() == 0, "it lives"
        assert (made / "a/file").exists()
        worker.communicate()
        assert workspace.sweep() == 1
    assert left(root) == []
    assert (outside / "precious").exists()


def test_only_old_things_of_others_are_swept(tmp_path: Path) -> None:
    home = tmp_path / ".toolreef/tmp"
    long_ago = time.time() - 2 * 24 * 3600
    for name in ("old-dir", "new-dir"):
        (home / name).mkdir(parents=True)
        (home / name / "file").touch()
    for name in ("old-file", "new-file"):
        (home / name).touch()
    for name in ("old-dir", "old-file"):
        os.utime(home / name, (long_ago, long_ago))
    with Workspace.open(str(tmp_path)) as workspace:
        assert workspace.sweep() == 2
    assert left(tmp_path) == ["new-dir", "new-file"]


def test_no_link_leads_the_sweeper_to_the_agents_own_files(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/old").touch()
    (tmp_path / ".toolreef").mkdir()
    (tmp_path / ".toolreef/tmp").symlink_to("../src")
    os.utime(tmp_path / "src/old", (0, 0))
    with Workspace.open(str(tmp_path)) as workspace:
        assert workspace.sweep() == 0
    assert (tmp_path / "src/old").exists()


def test_a_deep_tree_is_removed_with_few_descriptors(tmp_path: Path) -> None:
    os.mkdir(tmp_path / "tree")
    fd = os.open(tmp_path / "tree", os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deeper", dir_fd=fd)
        os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
        below = os.open("deeper", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    above = os.open(tmp_path, os.O_RDONLY)
    before = len(os.listdir("/proc/self/fd"))
    assert remove_tree(above, b"tree", budget_s=60)
    assert len(os.listdir("/proc/self/fd")) <= before
    os.close(above)
    assert list(tmp_path.iterdir()) == []


def test_directories_that_their_owner_closed_are_removed(tmp_path: Path) -> None:
    (tmp_path / "tree/closed/inner").mkdir(parents=True)
    (tmp_path / "tree/closed/inner/file").touch()
    tmp_path.chmod(0o755)
    give_to_nobody(tmp_path)
    for path in ("tree/closed/inner", "tree/closed", "tree"):
        os.chmod(tmp_path / path, 0)
    above = os.open(tmp_path, os.O_RDONLY)
    with as_nobody():
        assert remove_tree(above, b"tree", budget_s=60)
    os.close(above)
    assert list(tmp_path.iterdir()) == []


def test_removal_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    for number in range(1000):
        (tmp_path / "tree" / str(number)).touch()
    above = os.open(tmp_path, os.O_RDONLY)
    assert not remove_tree(above, b"tree", budget_s=0)
    assert 0 < len(list((tmp_path / "tree").iterdir())) < 1000
    assert remove_tree(above, b"tree", budget_s=60)
    os.close(above)

"""What a tree takes on disk: every kind of file, and trees made to be miscounted."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.conftest import as_nobody, give_to_nobody
from worker.disk_usage import SLACK_BYTES, Usage, tree_bytes
from worker.disk_watch import DiskWatch, is_full

MIB = 1024**2


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "tree"
    made.mkdir()
    yield made
    subprocess.run(["chmod", "-R", "u+rwx", made], check=True)
    subprocess.run(["rm", "-rf", made], check=True)


def measured(root: Path, max_entries: int = 1_000_000) -> int:
    """What we find."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return tree_bytes(fd, max_entries=max_entries)
    finally:
        os.close(fd)


def by_du(root: Path) -> int:
    """What du finds, which counts the same way."""
    shown = subprocess.run(["du", "-s", "-B1", root], capture_output=True, text=True, check=True).stdout
    return int(shown.split()[0])


def test_files_of_all_kinds(root: Path) -> None:
    (root / "a/b/c").mkdir(parents=True)
    (root / "a/big").write_bytes(b"x" * 3 * MIB)
    (root / "a/b/c/small").write_bytes(b"x")
    (root / "a/b/empty").write_bytes(b"")
    with open(root / "sparse", "wb") as file:
        file.truncate(1024 * MIB)
    for number in range(20):
        os.link(root / "a/big", root / f"again-{number}")
    os.mkfifo(root / "fifo")
    (root / "a/b/up").symlink_to("../..")
    (root / "away").symlink_to("/usr")
    assert 3 * MIB <= measured(root) < 4 * MIB
    assert measured(root) == by_du(root)


def test_other_file_systems_are_not_ours(root: Path) -> None:
    """The descriptor of a mount's parent: /dev has other file systems beneath it on any Linux."""
    if os.stat("/dev/shm").st_dev == os.stat("/dev").st_dev:
        pytest.skip("nothing is mounted there")
    shown = subprocess.run(["du", "-x", "-s", "-B1", "/dev"], capture_output=True, text=True, check=False).stdout
    assert measured(Path("/dev")) == int(shown.split()[0])


def test_a_tree_deeper_than_paths_can_say(root: Path) -> None:
    fd = os.open(root, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deeper", dir_fd=fd)
        below = os.open("deeper", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    file = os.open("hidden", os.O_WRONLY | os.O_CREAT, dir_fd=fd)
    os.write(file, b"x" * MIB)
    os.close(file)
    os.close(fd)
    open_before = len(os.listdir("/proc/self/fd"))
    assert measured(root) == by_du(root) > MIB
    assert len(os.listdir("/proc/self/fd")) <= open_before


def test_a_directory_that_its_owner_may_not_read(root: Path) -> None:
    (root / "closed/inner").mkdir(parents=True)
    (root / "closed/inner/hidden").write_bytes(b"x" * MIB)
    give_to_nobody(root)
    os.chmod(root / "closed/inner", 0)
    os.chmod(root / "closed", 0o300)
    root.parent.chmod(0o755)
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    with as_nobody():
        assert tree_bytes(fd) > MIB
    os.close(fd)
    assert stat.S_IMODE((root / "closed").stat().st_mode) == 0o300
    assert stat.S_IMODE((root / "closed/inner").stat().st_mode) == 0


def test_a_tree_that_is_moved_about_meanwhile(root: Path) -> None:
    """Never beyond the root, never without end."""
    for branch in "abcdefgh":
        (root / branch / "1/2/3/4").mkdir(parents=True)
        (root / branch / "1/2/3/4/file").write_bytes(b"x" * 4096)
    (root.parent / "outside").write_bytes(b"x" * 64 * MIB)
    done = threading.Event()

    def move() -> None:
        while not done.is_set():
            for branch in "abcd":
                os.rename(root / branch / "1/2", root / "moved")
                os.rename(root / "moved", root / branch / "1/2")

    mover = threading.Thread(target=move)
    mover.start()
    try:
        found = [measured(root) for _ in range(300)]
    finally:
        done.set()
        mover.join()
    assert max(found) < MIB
    assert measured(root) == by_du(root)


def test_a_look_is_bounded(root: Path) -> None:
    for number in range(300):
        (root / f"{number}").write_bytes(b"x")
    assert measured(root, max_entries=100) < by_du(root)


def test_what_is_known_is_kept_and_grows_old(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    usage = Usage(fd)
    os.close(fd)
    assert (usage.bytes, usage.is_due) == (None, True)
    empty = usage.look().result()
    assert (usage.bytes, usage.is_due) == (empty, False)
    usage.reckon(5 * MIB)
    assert usage.bytes == empty + 5 * MIB
    now = time.monotonic()
    monkeypatch.setattr("worker.disk_usage.time.monotonic", lambda: now + 3)
    assert usage.is_due
    assert usage.look().result() == usage.bytes == empty


def test_who_is_over_may_not_add_a_little_each_time(root: Path) -> None:
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    usage = Usage(fd)
    os.close(fd)
    sizes = {8: 8, 9: 8, 10: 8, 6: 6, 7: 6, 2: None, 9.5: 9.5}
    for size, lowest in sizes.items():
        (root / "file").write_bytes(b"x" * int(size * MIB))
        found = usage.look().result()
        overhead = found - int(size * MIB)
        expected = 4 * MIB if lowest is None else int(lowest * MIB) + overhead + SLACK_BYTES
        assert usage.ceiling(4 * MIB) == expected, size


@pytest.mark.parametrize(
    "free_blocks, files, free_files, full",
    [
        (32768, 1 << 20, 4096, False),
        (32767, 1 << 20, 4096, True),
        (32768, 1 << 20, 4095, True),
        (32768, 1600, 100, False),
        (32768, 1600, 99, True),
        (32768, 0, 0, False),
    ],
)
def test_a_file_system_is_full_when_bytes_or_files_run_out(
    free_blocks: int, files: int, free_files: int, full: bool
) -> None:
    """Some have no fixed number of files, some a small one."""
    found = os.statvfs_result((4096, 4096, 10**6, free_blocks, free_blocks, files, free_files, free_files, 0, 255))
    assert is_full(found, 128 * MIB, 4096) == full


def test_a_workspace_that_can_not_be_looked_at_holds_nothing_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fd = os.open(tmp_path / "file", os.O_RDONLY | os.O_CREAT)
    usage = Usage(fd)
    watch = DiskWatch(fd, pytest.fail, free_bytes=0, free_files=0, usage=usage, workspace_bytes=1)
    asyncio.run(asyncio.wait_for(watch.begin(), 5))
    os.close(fd)
    assert "a workspace's size can't be told: Not a directory" in caplog.text

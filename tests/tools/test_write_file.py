"""write_file: exact bytes, atomically, with everything else of the file kept or told."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import resource
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.tools import WriteFileArgs
from tests.tools.conftest import Files, as_nobody, give_to_nobody
from worker.failures import CallFailed
from worker.tools import write_file

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_new_file_with_parents(files: Files) -> None:
    output = files.write("a/b/c.txt", "hi ü\r\n\x00")
    data = b"hi \xc3\xbc\r\n\x00"
    assert (output.path, output.bytes, output.sha256, output.created) == ("a/b/c.txt", len(data), sha(data), True)
    assert files.tree() == {"a": None, "a/b": None, "a/b/c.txt": data}
    assert files.opened == ["a/b/c.txt"]
    assert stat.S_IMODE((files.root / "a/b/c.txt").stat().st_mode) == 0o666 & ~_umask()
    again = files.write(str(files.root / "a/b/c.txt"), "")
    assert (again.path, again.bytes, again.created) == ("a/b/c.txt", 0, False)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_parents_that_are_none_change_nothing(files: Files) -> None:
    files.put("f", b"x")
    (files.root / "d").mkdir()
    assert "not a directory" in str(files.fail("wrong_kind", "write_file", path="f/n/x.txt", content="y"))
    assert "is a directory" in str(files.fail("wrong_kind", "write_file", path="d", content="y"))
    assert "is a directory" in str(files.fail("wrong_kind", "write_file", path="new/", content="y"))
    assert "is a directory" in str(files.fail("wrong_kind", "write_file", path=".", content="y"))
    assert files.tree() == {"d": None, "f": b"x"}


def test_parents_of_a_failed_write_are_taken_back(files: Files) -> None:
    files.fail("conflict", "write_file", path="a/b/c.txt", content="x", if_match=sha(b"old"))
    assert files.tree() == {}


@pytest.mark.parametrize("mode", [0o755, 0o600, 0o640, 0o2644, 0o4755, 0o1666])
def test_mode_is_kept(files: Files, mode: int) -> None:
    files.put("s.sh", b"old")
    (files.root / "s.sh").chmod(mode)
    assert files.write("s.sh", "new").notes == []
    assert stat.S_IMODE((files.root / "s.sh").stat().st_mode) == mode
    files.edit("s.sh", "new", "newer")
    assert stat.S_IMODE((files.root / "s.sh").stat().st_mode) == mode


@ROOT_ONLY
def test_owner_group_attributes_and_acl_are_kept(files: Files) -> None:
    path = files.root / "g.txt"
    files.put("g.txt", b"a\n")
    os.chown(path, 1000, 33)
    path.chmod(0o2640)
    os.setxattr(path, "user.k", b"v")
    acl = bytes.fromhex("0200000001000600ffffffff02000400e903000004000400ffffffff10000600ffffffff20000000ffffffff")
    os.setxattr(path, "system.posix_acl_access", acl)
    mode = path.stat().st_mode
    assert files.edit("g.txt", "a", "b").notes == []
    found = path.stat()
    assert (found.st_uid, found.st_gid, found.st_mode, files.get("g.txt")) == (1000, 33, mode, b"b\n")
    assert os.getxattr(path, "user.k") == b"v"
    assert os.getxattr(path, "system.posix_acl_access") == acl


@ROOT_ONLY
def test_what_can_not_be_kept_is_told(files: Files) -> None:
    files.put("shared.txt", b"a\n")
    (files.root / "shared.txt").chmod(0o4666)
    os.chown(files.root, 65534, 65534)
    with as_nobody():
        output = files.write("shared.txt", "b\n")
    assert output.notes == [
        "the owner could not be kept: it was 0, it is 65534",
        "the group could not be kept: it was 0, it is 65534",
    ]
    assert stat.S_IMODE((files.root / "shared.txt").stat().st_mode) == 0o666


@ROOT_ONLY
def test_file_capabilities_are_not_handed_on(files: Files) -> None:
    files.put("tool", b"a\n")
    os.setxattr(files.root / "tool", "security.capability", bytes.fromhex("0100000200040000000000000000000000000000"))
    assert files.write("tool", "b\n").notes == ["attributes not kept: security.capability (dropped on purpose)"]
    assert "security.capability" not in os.listxattr(files.root / "tool")


def test_new_files_inherit_from_their_directory(files: Files) -> None:
    (files.root / "d").mkdir(mode=0o755)
    (files.root / "d").chmod(0o2775)
    if os.geteuid() == 0:
        os.chown(files.root / "d", -1, 33)
        (files.root / "d").chmod(0o2775)
    files.write("d/new", "x")
    assert (files.root / "d/new").stat().st_gid == (files.root / "d").stat().st_gid


def test_links_inside_are_written_through_and_kept(files: Files) -> None:
    files.put("real/t.txt", b"old")
    (files.root / "rel").symlink_to("real/t.txt")
    (files.root / "abs").symlink_to(files.root / "real")
    (files.root / "new").symlink_to("real/made/later.txt")
    assert files.write("rel", "one").path == "real/t.txt"
    assert files.get("real/t.txt") == b"one"
    files.edit("abs/t.txt", "one", "two")
    files.write("new", "three")
    assert (files.get("real/t.txt"), files.get("real/made/later.txt")) == (b"two", b"three")
    assert [(files.root / name).is_symlink() for name in ("rel", "abs", "new")] == [True, True, True]


def test_links_out_are_refused_and_tell_nothing(files: Files, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "there").write_bytes(b"secret")
    (files.root / "d").symlink_to(tmp_path / "out")
    (files.root / "l").symlink_to(tmp_path / "out/there")
    (files.root / "n").symlink_to(tmp_path / "out/missing")
    (files.root / "up").symlink_to("../out")
    words = set()
    for path in ("d/there", "d/missing", "d/sub/missing", "l", "n", "up/there", "up/missing"):
        words.add(str(files.fail("forbidden", "write_file", path=path, content="x")).removeprefix(path))
        words.add(str(files.fail("forbidden", "edit_file", path=path, old_text="s", new_text="t")).removeprefix(path))
    assert words == {": outside of the workspace"}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["there"]
    assert (tmp_path / "out/there").read_bytes() == b"secret"


def test_hard_links_are_refused(files: Files) -> None:
    files.put("a.md", b"line 1\n")
    os.link(files.root / "a.md", files.root / "b.md")
    failure = files.fail("wrong_kind", "edit_file", path="a.md", old_text="line 1", new_text="line 2")
    assert "2 hard links" in str(failure)
    files.fail("wrong_kind", "write_file", path="b.md", content="x")
    assert (files.get("a.md"), files.get("b.md")) == (b"line 1\n", b"line 1\n")
    assert files.read("a.md").text == "line 1\n"


def test_read_only_is_refused_also_for_root(files: Files) -> None:
    files.put("f", b"old")
    (files.root / "f").chmod(0o444)
    assert "read-only (mode 0444)" in str(files.fail("permission", "write_file", path="f", content="new"))
    files.fail("permission", "edit_file", path="f", old_text="old", new_text="new")
    assert files.get("f") == b"old"


@ROOT_ONLY
def test_files_of_others_are_not_replaced_by_way_of_their_directory(files: Files) -> None:
    files.put("roots", b"old")
    (files.root / "roots").chmod(0o644)
    os.chown(files.root, 65534, 65534)
    with as_nobody():
        files.fail("permission", "write_file", path="roots", content="new")
    assert files.get("roots") == b"old"
    (files.root / "closed").mkdir(mode=0o555)
    give_to_nobody(files.root)
    with as_nobody():
        files.fail("permission", "write_file", path="closed/x", content="new")


def test_if_match_is_content_and_not_time(files: Files) -> None:
    files.put("a.txt", b"one\n")
    version = files.read("a.txt").sha256
    os.utime(files.root / "a.txt", (1, 1))
    assert files.write("a.txt", "two\n", if_match=version).sha256 == sha(b"two\n")
    failure = files.fail("conflict", "write_file", path="a.txt", content="three", if_match=version)
    assert sha(b"two\n") in str(failure)
    assert version in str(failure)
    files.fail("conflict", "edit_file", path="a.txt", old_text="two", new_text="2", if_match=version)
    files.fail("conflict", "write_file", path="gone.txt", content="x", if_match=version)
    assert files.tree() == {"a.txt": b"two\n"}


def test_a_change_since_the_last_read_is_told(files: Files) -> None:
    files.put("a.txt", b"one\n")
    files.read("a.txt")
    files.put("a.txt", b"one\nmore\n")
    note = "the file had changed since this session last read it; pass if_match to be stopped"
    assert files.write("a.txt", "two\n").notes == [note]
    assert files.write("a.txt", "three\n").notes == []
    files.put("a.txt", b"four\n")
    assert files.edit("a.txt", "four", "five").notes == ["the file had changed since this session last saw it"]


def test_create_only(files: Files) -> None:
    assert files.write("n.txt", "one", create_only=True).created
    assert "exists already" in str(files.fail("conflict", "write_file", path="n.txt", content="two", create_only=True))
    (files.root / "dangling").symlink_to("n2.txt")
    assert files.write("dangling", "three", create_only=True).path == "n2.txt"
    assert files.get("n.txt") == b"one"


def test_only_one_of_many_creates(files: Files) -> None:
    async def main() -> list[bool]:
        calls = [files.run("write_file", path="d/n", content=str(n), create_only=True) for n in range(20)]
        return [not isinstance(done, CallFailed) for done in await asyncio.gather(*calls, return_exceptions=True)]

    assert sum(asyncio.run(main())) == 1
    assert len(files.tree()) == 2


def test_dry_run_shows_and_changes_nothing(files: Files) -> None:
    files.put("a.txt", b"one\ntwo\nthree\n")
    output = files.write("a.txt", "one\n2\nthree\nfour", dry_run=True)
    assert output.diff == (
        "--- a.txt\n+++ a.txt\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n three\n+four\n\\ No newline at end of file\n"
    )
    assert (output.created, output.sha256) == (False, sha(b"one\n2\nthree\nfour"))
    output = files.write("x/y.txt", "new\n", dry_run=True)
    assert (output.created, output.diff) == (True, "--- /dev/null\n+++ x/y.txt\n@@ -0,0 +1 @@\n+new\n")
    files.put("bin", b"\x89PNG\r\n\x1a\n\0")
    assert "binary file (PNG)" in files.write("bin", "x", dry_run=True).diff
    assert files.tree() == {"a.txt": b"one\ntwo\nthree\n", "bin": b"\x89PNG\r\n\x1a\n\0"}


def test_changed_encodings_and_line_endings_are_told(files: Files) -> None:
    files.put("u16", "a\nb\n".encode("utf-16"))
    assert files.write("u16", "a\nb\n").notes == ["the file was utf-16-le; it is utf-8 now"]
    files.put("crlf", b"a\r\nb\r\n")
    assert files.write("crlf", "a\nb\n").notes == ["its line endings were crlf; they are lf now"]
    assert files.get("crlf") == b"a\nb\n"


def test_the_workers_own_names_are_reserved(files: Files) -> None:
    files.fail("invalid_call", "write_file", path=".toolreef/x", content="x")
    files.fail("invalid_call", "write_file", path="d/.toolreef-tmp.x", content="x")
    assert files.tree() == {}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    at = tmp_path / "small"
    at.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(at)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("can't mount a tmpfs here")
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


@pytest.mark.parametrize("size", [900_000, 3_000_000])
def test_a_full_disk_loses_nothing(small_disk: Path, size: int) -> None:
    files = Files(small_disk)
    files.put("f.txt", b"old" * 100_000)
    before = files.tree()
    failure = files.fail("no_space", "write_file", path="new/f2.txt", content="x" * size)
    assert str(failure) == "new/f2.txt: no space left on device"
    files.fail("no_space", "write_file", path="f.txt", content="x" * size)
    assert files.tree() == before
    files.workspace.close()


@pytest.mark.parametrize("size", [900_000, 3_000_000])
def test_a_size_limit_loses_nothing(files: Files, size: int) -> None:
    files.put("f.txt", b"old")
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard))
    try:
        failure = files.fail("too_large", "write_file", path="f.txt", content="x" * size)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert str(failure) == "f.txt: file too large"
    assert files.tree() == {"f.txt": b"old"}


def test_large_content_passes_in_pieces(files: Files) -> None:
    content = "0123456789abcde\n" * 300_000
    output = files.write("big", content)
    assert (output.bytes, output.sha256) == (len(content), sha(content.encode()))
    assert files.get("big") == content.encode()
    files.fail("conflict", "write_file", path="big", content=content, create_only=True)
    assert list(files.tree()) == ["big"]


def test_a_cancelled_write_is_whole_or_nothing(files: Files) -> None:
    content = "0123456789abcde\n" * 1_000_000

    async def main(turns: int) -> bool:
        task = asyncio.create_task(write_file.run(WriteFileArgs(path="big", content=content), files.context()))
        for _ in range(turns):
            await asyncio.sleep(0.002)
        task.cancel()
        await asyncio.wait({task})
        return task.cancelled()

    cancelled = 0
    for turns in range(8):
        files.put("big", b"old")
        cancelled += asyncio.run(main(turns))
        assert list(files.tree()) == ["big"]
        assert files.get("big") in (b"old", content.encode())
    assert cancelled
    assert _open_descriptors(files.root) == []


def _open_descriptors(root: Path) -> list[str]:
    paths = []
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
        if path.startswith(f"{root}/"):
            paths.append(path)
    return paths


def test_without_unnamed_files_or_hard_links(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """File systems that offer neither take the other way, to the same end."""
    real_open, real_link = os.open, os.link

    def plain_open(path: object, flags: int, *args: object, **named: object) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no unnamed files")
        return real_open(path, flags, *args, **named)  # type: ignore[arg-type]

    def no_link(*args: object, **named: object) -> None:
        raise OSError(errno.EPERM, "no hard links")

    monkeypatch.setattr(os, "open", plain_open)
    for link in (real_link, no_link):
        monkeypatch.setattr(os, "link", link)
        assert files.write("d/f", "one", create_only=True).created
        assert not files.write("d/f", "two").created
        files.fail("conflict", "write_file", path="d/f", content="three", create_only=True)
        assert files.tree() == {"d": None, "d/f": b"two"}
        shutil.rmtree(files.root / "d")


def test_the_workspace_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "lnk").symlink_to("real")
    files = Files(tmp_path / "lnk")
    assert files.workspace.roots == (str(tmp_path / "real"), str(tmp_path / "lnk"))
    files.write(str(tmp_path / "lnk/a.txt"), "one")
    assert files.read(str(tmp_path / "real/a.txt")).text == "one"
    files.write("newdir/b.txt", "two")
    (tmp_path / "real/l").symlink_to(tmp_path / "lnk/newdir/b.txt")
    assert files.read("l").text == "two"
    files.workspace.close()


def test_spelled_in_many_ways_it_is_one_file(files: Files) -> None:
    with tempfile.TemporaryDirectory(dir=files.root) as _:
        for path in ("./n.txt", "x/../n.txt", "//n.txt".replace("//", str(files.root) + "//"), "n.txt"):
            assert files.write(path, path).path == "n.txt"

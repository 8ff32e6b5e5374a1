"""list_directory: sorted, marked, never spoiled by one entry."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.tools.conftest import Files, as_nobody, give_to_nobody


def test_sorted_names_with_slashes(files: Files) -> None:
    for name in ("b", "a", "ä", "B", ".hidden", "z"):
        files.put(name, b"x")
    (files.root / "dir").mkdir()
    output = files.list()
    assert output.entries == [".hidden", "B", "a", "b", "dir/", "z", "ä"]
    assert (output.total, output.truncated, output.reason, output.marks, output.details) == (7, False, None, {}, None)
    assert files.opened == ["."]
    assert files.list(str(files.root)).entries == output.entries
    (files.root / "empty").mkdir()
    assert files.list("empty").entries == []


def test_links_and_odd_entries_are_marked(files: Files, tmp_path: Path) -> None:
    files.put("ok.txt", b"x")
    (files.root / "d").mkdir()
    for name, target in (
        ("dang", "missing"),
        ("loop", "loop"),
        ("out", str(tmp_path)),
        ("gone", str(tmp_path / "none")),
        ("to_file", "ok.txt"),
        ("to_dir", "d"),
        ("to_dir_absolute", str(files.root / "d")),
    ):
        (files.root / name).symlink_to(target)
    os.mkfifo(files.root / "fifo")
    output = files.list(details=True)
    outside = "link that leads outside of the workspace"
    assert output.entries == [
        "d/",
        "dang",
        "fifo",
        "gone",
        "loop",
        "ok.txt",
        "out",
        "to_dir/",
        "to_dir_absolute/",
        "to_file",
    ]
    assert output.marks == {
        "dang": "broken link to missing",
        "fifo": "FIFO",
        "gone": outside,
        "loop": "broken link (Too many levels of symbolic links)",
        "out": outside,
        "to_dir/": "link to d (directory)",
        "to_dir_absolute/": f"link to {files.root / 'd'} (directory)",
        "to_file": "link to ok.txt",
    }
    details = {entry.name: entry for entry in output.details}
    assert (details["ok.txt"].kind, details["ok.txt"].bytes) == ("file", 1)
    assert details["ok.txt"].modified.endswith("Z")
    assert (details["dang"].kind, details["dang"].target) == ("link", "missing")
    assert details["dang"].problem == "broken link to missing"
    assert details["d/"].kind == "directory"


def test_unreadable_entries_are_listed(files: Files) -> None:
    files.put("priv/x", b"")
    files.put("closed", b"")
    (files.root / "priv").chmod(0)
    (files.root / "closed").chmod(0)
    give_to_nobody(files.root)
    with as_nobody():
        output = files.list(depth=2)
        files.fail("permission", "list_directory", path="priv")
    (files.root / "priv").chmod(0o700)
    assert output.entries == ["closed", "priv/"]
    assert output.marks == {"closed": "unreadable", "priv/": "unreadable"}


def test_depth(files: Files) -> None:
    for path in ("a/b/c/d.txt", "a/x", "e"):
        files.put(path, b"")
    (files.root / "a/up").symlink_to("..")
    assert files.list(depth=2).entries == ["a/", "a/b/", "a/up/", "a/x", "e"]
    assert files.list(depth=9).entries == ["a/", "a/b/", "a/b/c/", "a/b/c/d.txt", "a/up/", "a/x", "e"]
    assert files.list("a", depth=2).entries == ["b/", "b/c/", "up/", "x"]


def test_limit_and_total(files: Files) -> None:
    for number in range(25):
        files.put(f"d/{number:02}", b"")
    output = files.list("d", limit=3)
    assert (output.entries, output.total, output.truncated) == (["00", "01", "02"], 25, True)
    assert output.reason == "count: 3 of 25 entries are shown"
    assert (files.list(depth=2, limit=5).total, files.list("d", limit=25).truncated) == (26, False)


def test_the_workers_own_files_are_hidden(files: Files) -> None:
    fd, path = files.workspace.spills.create("s1.c1.stdout")
    os.write(fd, b"long output\n")
    os.close(fd)
    files.put(".toolreef-tmp.x.1.2.3", b"half")
    files.put("a", b"")
    assert files.list(depth=5).entries == ["a"]
    assert files.found("*") == ["a"]
    assert files.search("long output", content_search=True).matches == []
    assert path == ".toolreef/spill/s1.c1.stdout"
    assert files.read(path).text == "long output\n"
    assert files.list(".toolreef/spill").entries == ["s1.c1.stdout"]
    assert files.search("output", path, content_search=True).matches[0].text == "long output"


def test_what_is_no_directory(files: Files, tmp_path: Path) -> None:
    files.put("f", b"")
    os.mkfifo(files.root / "fifo")
    assert str(files.fail("wrong_kind", "list_directory", path="f")) == "f: is a file, not a directory"
    assert str(files.fail("wrong_kind", "list_directory", path="fifo")) == "fifo: is a FIFO, not a directory"
    (files.root / "out").symlink_to(tmp_path)
    for path in ("out", "none", "..", "/", "/etc", "../ws-evil", str(tmp_path)):
        assert str(files.fail("not_found", "list_directory", path=path)) == f"{path}: no such file or directory"


@pytest.mark.parametrize("seconds", [2**40, -(2**31), 0])
def test_any_time_will_do(files: Files, seconds: int) -> None:
    files.put("f", b"")
    try:
        os.utime(files.root / "f", (seconds, seconds))
    except OverflowError:
        pytest.skip("the file system has no such time")
    assert files.list(details=True).entries == ["f"]


def test_sockets_are_listed(files: Files) -> None:
    here = os.getcwd()
    with socket.socket(socket.AF_UNIX) as listening:
        os.chdir(files.root)
        try:
            listening.bind("sock")
        finally:
            os.chdir(here)
        assert files.list().marks == {"sock": "socket"}

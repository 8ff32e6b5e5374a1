"""Opening beneath the root: every way out, tried for real, with and without openat2."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.workspace import InvalidPath, NotRegular, Outside, Spot, Workspace, beneath, from_wire, locate, to_wire

SWAP = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
here = os.open(sys.argv[1], os.O_RDONLY)
one, other = (os.fsencode(name) for name in sys.argv[2:])
print("swapping", flush=True)
while True:
    libc.renameat2(here, one, here, other, 2)
"""


@pytest.fixture(params=["openat2", "walk"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workspace]:
    """A workspace with something outside, opened in each of the two ways."""
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws-evil").mkdir()
    (tmp_path / "ws-evil/secret").write_bytes(b"outside")
    with Workspace.open(str(tmp_path / "ws")) as opened:
        if request.param == "openat2" and not opened._opener.has_openat2:
            pytest.skip("no openat2 here")
        opened._opener.has_openat2 = request.param == "openat2"
        yield opened


def read(workspace: Workspace, path: str) -> bytes:
    with workspace.open_file(workspace.locate(path)) as opened:
        return os.read(opened.fd, 100)


@pytest.mark.parametrize(
    "path",
    [
        "../ws-evil/secret",
        "a/../../ws-evil/secret",
        "{out}/ws-evil/secret",
        "/etc",
        "..",
        "/",
        "{root}-evil/secret",
    ],
)
def test_outside_by_its_text(workspace: Workspace, path: str) -> None:
    root = Path(workspace.root)
    with pytest.raises(Outside):
        workspace.locate(path.format(out=root.parent, root=root))


@pytest.mark.parametrize(
    "links,path",
    [
        ({"l": "../ws-evil/secret"}, "l"),
        ({"d": "../ws-evil"}, "d/secret"),
        ({"d": "{out}/ws-evil"}, "d/secret"),
        ({"d": "{out}/ws-evil"}, "d/missing"),
        ({"d": "{out}"}, "d/ws/f"),
        ({"a": "b", "b": "c", "c": "../ws-evil/secret"}, "a"),
        ({"p": "/proc/self/root"}, "p/etc/passwd"),
        ({"p": "/proc/self/cwd"}, "p"),
        ({"z": "/dev/zero"}, "z"),
        ({"up": "sub/../../ws-evil/secret"}, "up"),
        ({"abs": "{root}/../ws-evil/secret"}, "abs"),
        ({"root": "/"}, "root/etc/passwd"),
    ],
)
def test_outside_by_links(workspace: Workspace, links: dict[str, str], path: str) -> None:
    root = Path(workspace.root)
    (root / "sub").mkdir()
    (root / "f").write_bytes(b"inside")
    for name, target in links.items():
        (root / name).symlink_to(target.format(out=root.parent, root=root))
    spot = workspace.locate(path)
    with pytest.raises(Outside):
        workspace.open_file(spot)
    with pytest.raises(Outside):
        workspace.place(spot, make_parents=True).close()
    assert sorted(os.listdir(root.parent)) == ["ws", "ws-evil"]
    assert os.listdir(root.parent / "ws-evil") == ["secret"]


@pytest.mark.parametrize(
    "links,path,canonical",
    [
        ({"l": "d/f"}, "l", b"d/f"),
        ({"l": "d"}, "l/f", b"d/f"),
        ({"l": "{root}/d/f"}, "l", b"d/f"),
        ({"l": "{root}"}, "l/l/d/f", b"d/f"),
        ({"l": "d/e/../f"}, "l", b"d/f"),
        ({"l": "./d/./f"}, "l", b"d/f"),
        ({"d/up": "../d/f"}, "d/up", b"d/f"),
        ({"a": "b", "b": "{root}/c", "c": "d/f"}, "a", b"d/f"),
    ],
)
def test_links_that_stay_inside_are_followed(
    workspace: Workspace, links: dict[str, str], path: str, canonical: bytes
) -> None:
    root = Path(workspace.root)
    (root / "d/e").mkdir(parents=True)
    (root / "d/f").write_bytes(b"inside")
    for name, target in links.items():
        (root / name).symlink_to(target.format(root=root))
    with workspace.open_file(workspace.locate(path)) as opened:
        assert (os.read(opened.fd, 100), opened.path) == (b"inside", canonical)
    place = workspace.place(workspace.locate(path))
    assert workspace.path_of(place) == canonical
    place.close()


def test_loops_and_missing(workspace: Workspace) -> None:
    root = Path(workspace.root)
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        workspace.open_file(workspace.locate("a"))
    for path in ("none", "no/ne"):
        with pytest.raises(FileNotFoundError):
            workspace.open_file(workspace.locate(path))
    (root / "dangling").symlink_to("none")
    with pytest.raises(FileNotFoundError):
        workspace.open_file(workspace.locate("dangling"))


def test_mounts_inside_are_outside(workspace: Workspace) -> None:
    root = Path(workspace.root)
    (root / "m").mkdir()
    command = ["mount", "--bind", str(root.parent / "ws-evil"), str(root / "m")]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("can't mount here")
    try:
        with pytest.raises(Outside):
            workspace.open_file(workspace.locate("m/secret"))
        with pytest.raises(Outside):
            workspace.open_directory(workspace.locate("m"))
    finally:
        subprocess.run(["umount", "-l", str(root / "m")], check=True)


def test_special_files_do_not_wait(workspace: Workspace) -> None:
    os.mkfifo(Path(workspace.root) / "p")
    with pytest.raises(NotRegular) as caught:
        workspace.open_file(workspace.locate("p"))
    assert caught.value.kind == "FIFO"


@pytest.mark.parametrize("kind", ["file", "directory", "parent"])
def test_thirty_thousand_opens_against_a_swap(workspace: Workspace, kind: str) -> None:
    """A name changes between a file inside and a link out while it is opened, again and again."""
    root = Path(workspace.root)
    (root / "in").mkdir()
    (root / "in/secret").write_bytes(b"inside")
    (root / "out").symlink_to("../ws-evil")
    (root / "f").write_bytes(b"inside")
    (root / "fout").symlink_to("../ws-evil/secret")
    names = ("f", "fout") if kind == "file" else ("in", "out")
    swapper = subprocess.Popen([sys.executable, "-c", SWAP, str(root), *names], stdout=subprocess.PIPE)
    assert swapper.stdout is not None
    assert swapper.stdout.readline() == b"swapping\n"
    spot = Spot((b"f",) if kind == "file" else (b"in", b"secret"))
    inside, escapes, refused = 0, 0, 0
    try:
        for _ in range(30_000):
            try:
                if kind == "parent":
                    place = workspace.place(spot)
                    here = os.stat(place.name or b"", dir_fd=place.dir_fd, follow_symlinks=False).st_size
                    place.close()
                    data = b"inside" if here == 6 else b"outside"
                else:
                    with workspace.open_file(spot) as opened:
                        data = os.pread(opened.fd, 10, 0)
            except (Outside, OSError):
                refused += 1
                continue
            inside += data == b"inside"
            escapes += data != b"inside"
    finally:
        swapper.kill()
        swapper.wait()
        swapper.stdout.close()
    assert escapes == 0
    assert inside > 0
    assert refused > 0


def test_the_root_is_not_looked_up_again(workspace: Workspace) -> None:
    root = Path(workspace.root)
    (root / "f").write_bytes(b"inside")
    root.rename(root.parent / "moved")
    root.symlink_to("ws-evil")
    assert read(workspace, "f") == b"inside"
    with pytest.raises(FileNotFoundError):
        read(workspace, "secret")


def test_what_is_deleted_or_moved_out_meanwhile(workspace: Workspace) -> None:
    root = Path(workspace.root)
    (root / "f (deleted)").write_bytes(b"x")
    assert workspace.open_file(workspace.locate("f (deleted)")).path == b"f (deleted)"
    fd = os.open(root / "f (deleted)", os.O_RDONLY)
    (root / "f (deleted)").rename(root.parent / "moved")
    with pytest.raises(Outside):
        workspace._canonical(fd, Spot((b"f",)))
    os.close(fd)


def test_no_descriptor_is_left_open(workspace: Workspace) -> None:
    root = Path(workspace.root)
    (root / "a/b").mkdir(parents=True)
    (root / "a/l").symlink_to(root / "a/b")
    before = len(os.listdir("/proc/self/fd"))
    for path in ("a/l/new/x", "a/l/none", "a", "none/x", "a/l"):
        for act in (workspace.open_file, workspace.open_directory, workspace.look):
            try:
                act(workspace.locate(path)).close()
            except OSError:
                pass
        try:
            place = workspace.place(workspace.locate(path), make_parents=True)
            beneath.undo(place)
            place.close()
        except OSError:
            pass
    assert len(os.listdir("/proc/self/fd")) == before
    assert sorted(path.name for path in root.rglob("*")) == ["a", "b", "l"]


def test_open_and_its_faults(tmp_path: Path) -> None:
    with Workspace.open(str(tmp_path / "new/ws")) as workspace:
        assert workspace.roots == (str(tmp_path / "new/ws"),)
        workspace.close()
    with pytest.raises(FileNotFoundError):
        Workspace.open(str(tmp_path / "other"), create=False)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        Workspace.open(str(tmp_path / "file"))


@given(st.binary(min_size=1, max_size=30))
def test_every_name_travels_both_ways(name: bytes) -> None:
    text = to_wire(name)
    assert text.encode()
    assert from_wire(text) == name


@given(st.text(min_size=1, max_size=30))
def test_every_text_is_a_name_or_refused(text: str) -> None:
    try:
        raw = from_wire(text)
    except InvalidPath:
        assert any(0xD800 <= ord(char) <= 0xDFFF for char in text)
        return
    assert from_wire(to_wire(raw)) == raw


@pytest.mark.parametrize(
    "path,parts",
    [
        ("a", (b"a",)),
        ("/w/a", (b"a",)),
        ("/lnk/a", (b"a",)),
        ("//w//a/./b/../c", (b"a", b"c")),
        ("../w/a", (b"a",)),
        ("x/../../w/a", (b"a",)),
        (".", ()),
        ("/w", ()),
        ("/w2/a", None),
        ("/", None),
        ("..", None),
        ("../../../w/a", (b"a",)),
        ("~/a", (b"~", b"a")),
    ],
)
def test_locate(path: str, parts: tuple[bytes, ...] | None) -> None:
    spot = locate(path, ("/w", "/lnk"))
    assert (spot.parts if spot else None) == parts


def test_spill_files(tmp_path: Path) -> None:
    with Workspace.open(str(tmp_path)) as workspace:
        for number in range(4):
            fd, path = workspace.spills.create(f"s{number % 2}.c{number}")
            os.write(fd, b"x" * 100)
            os.utime(fd, (time.time() - 100 + number, time.time() - 100 + number))
            os.close(fd)
            assert path == f".toolreef/spill/s{number % 2}.c{number}"
        assert (tmp_path / ".toolreef/.gitignore").read_bytes() == b"*\n"
        with pytest.raises(FileExistsError):
            workspace.spills.create("s0.c0")
        for bad in ("../x", "a/b", "", ".x", "x" * 300):
            with pytest.raises(ValueError, match="not a spill"):
                workspace.spills.create(bad)
        assert workspace.spills.remove("s1.") == 2
        assert workspace.spills.trim(max_bytes=150, max_age_s=1000) == 1
        assert os.listdir(tmp_path / ".toolreef/spill") == ["s0.c2"]
        assert workspace.spills.trim(max_bytes=150, max_age_s=1) == 1
        (tmp_path / ".toolreef/spill").rmdir()
        (tmp_path / ".toolreef/spill").symlink_to("/")
        with pytest.raises(Outside):
            workspace.spills.create("s0.c9")

"""Public bug reports about other agents' file tools, tried through the public entry: a job pushed, its reply read.

The reports stand in tests/data/tool_calls.jsonl; each has a function here, named after its id.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fleet import Agent, Fleet

CASES = {
    case["id"]: case
    for case in map(json.loads, Path(__file__).parents[1].joinpath("data/tool_calls.jsonl").read_text().splitlines())
}

Case = Callable[[Agent, Path], None]


@pytest.mark.parametrize("name", sorted(CASES))
def test_case(name: str, agent: Agent) -> None:
    agent.workspace.mkdir(parents=True)
    globals()[name.lower()](agent, agent.workspace)


def put(root: Path, path: str | bytes, data: bytes) -> None:
    whole = os.path.join(os.fsencode(root), os.fsencode(path))
    os.makedirs(os.path.dirname(whole), exist_ok=True)
    Path(os.fsdecode(whole)).write_bytes(data)


def edited(agent: Agent, root: Path, before: bytes, old: str, new: str, after: bytes) -> None:
    put(root, "f", before)
    agent.complete("edit_file", path="f", old_text=old, new_text=new)
    assert (root / "f").read_bytes() == after


def found(agent: Agent, path: str, pattern: str, **more: Any) -> list[str]:
    return [match["path"] for match in agent.complete("search_files", path=path, pattern=pattern, **more)["matches"]]


def p01(agent: Agent, root: Path) -> None:
    edited(agent, root, b"\xef\xbb\xbfhello\nworld\n", "world", "there", b"\xef\xbb\xbfhello\nthere\n")
    assert agent.complete("read_file", path="f")["text"] == "hello\nthere\n"
    edited(agent, root, b"\xef\xbb\xbfhello\nworld\n", "hello", "hé", b"\xef\xbb\xbfh\xc3\xa9\nworld\n")


def p02(agent: Agent, root: Path) -> None:
    put(root, "u16.txt", "name=alpha\nkey=β\n".encode("utf-16"))
    output = agent.complete("read_file", path="u16.txt")
    assert (output["text"], output["encoding"]) == ("name=alpha\nkey=β\n", "utf-16-le")
    agent.complete("edit_file", path="u16.txt", old_text="alpha", new_text="omega")
    assert (root / "u16.txt").read_bytes() == "name=omega\nkey=β\n".encode("utf-16")


def p04(agent: Agent, root: Path) -> None:
    edited(agent, root, b"a\r\nb\r\nc\r\n", "b", "B", b"a\r\nB\r\nc\r\n")


def p05(agent: Agent, root: Path) -> None:
    before = b"line one\r\nline two\r\nend\r\n"
    edited(agent, root, before, "line one\nline two", "L1\nL2", b"L1\r\nL2\r\nend\r\n")


def p07(agent: Agent, root: Path) -> None:
    edited(agent, root, b"x\ny", "x", "X", b"X\ny")


def p08(agent: Agent, root: Path) -> None:
    edited(agent, root, b"alpha\nbeta\n\n", "alpha", "ALPHA", b"ALPHA\nbeta\n\n")


def p10(agent: Agent, root: Path) -> None:
    edited(agent, root, b"fmt = '%s'\n", "'%s'", "\u2018%s\u2019", b"fmt = \xe2\x80\x98%s\xe2\x80\x99\n")


def p11(agent: Agent, root: Path) -> None:
    put(root, "t.go", b"func f() {\n\t\treturn\n}\n")
    assert "\t\treturn" in agent.complete("read_file", path="t.go")["text"]
    agent.complete("edit_file", path="t.go", old_text="\t\treturn", new_text="\t\treturn 1")
    error = agent.fail("edit_file", path="t.go", old_text="        return 1", new_text="x")
    assert error.code == "no_match"
    assert "at line 2 but for white space: the file has tabs where old_text has spaces" in error.hint


def p13(agent: Agent, root: Path) -> None:
    put(root, "Shot 9.22\u202fPM.txt", b"nnbsp")
    put(root, "re\u0301sume\u0301.txt", b"nfd")
    names = agent.complete("list_directory", path=".")["entries"]
    assert [agent.complete("read_file", path=name)["text"] for name in names] == ["nnbsp", "nfd"]
    assert agent.fail("read_file", path="Shot 9.22 PM.txt").code == "not_found"
    assert "re\u0301sume\u0301.txt" in agent.fail("read_file", path="r\u00e9sum\u00e9.txt").hint
    put(root, "r\u00e9sum\u00e9.txt", b"nfc")
    assert agent.complete("read_file", path="r\u00e9sum\u00e9.txt")["text"] == "nfc"


def p14(agent: Agent, root: Path) -> None:
    put(root, "good.txt", b"")
    put(root, b"bad\xff.txt", b"x")
    assert agent.complete("list_directory", path=".")["entries"] == ["bad\\xff.txt", "good.txt"]
    assert found(agent, ".", "*.txt") == ["bad\\xff.txt", "good.txt"]
    assert agent.complete("read_file", path="bad\\xff.txt")["text"] == "x"


def p16(agent: Agent, root: Path) -> None:
    for data in (b"abc", b""):
        put(root, "e.txt", data)
        error = agent.fail("edit_file", path="e.txt", old_text="", new_text="X")
        assert (error.code, error.effect) == ("invalid_call", "none")
        assert (root / "e.txt").read_bytes() == data


def p17(agent: Agent, root: Path) -> None:
    new = r"'^[sv]d$' $& $$ $` $1 \1 \g<0> \n"
    edited(agent, root, b"re = OLD;", "OLD", new, f"re = {new};".encode())


def p19(agent: Agent, root: Path) -> None:
    put(root, "a.txt", b"one\n")
    version = agent.complete("read_file", path="a.txt")["sha256"]
    os.utime(root / "a.txt", (1, 1))
    version = agent.complete("edit_file", path="a.txt", old_text="one", new_text="1", if_match=version)["sha256"]
    put(root, "a.txt", b"1\nmore\n")
    error = agent.fail("write_file", path="a.txt", content="2\n", if_match=version)
    assert error.code == "conflict"
    assert hashlib.sha256(b"1\nmore\n").hexdigest() in error.message
    assert (root / "a.txt").read_bytes() == b"1\nmore\n"
    assert "had changed" in agent.complete("write_file", path="a.txt", content="2\n")["notes"][0]


def p20(agent: Agent, root: Path) -> None:
    lines = b"".join(b"%d\n" % number for number in range(1, 101))
    (root / "l.txt").symlink_to("n.txt")
    other = agent.fleet.agent()
    opened = agent.fleet.run("session", "open", "--session", other.session, "--workspace", agent.session)
    assert opened.returncode == 0, opened.stderr
    for turn in range(5):
        put(root, "n.txt", lines)
        path = "l.txt" if turn % 2 else "./n.txt"
        edits = [
            threading.Thread(
                target=agent.complete, args=("edit_file", {"path": path, "old_text": "\n50\n", "new_text": "\nFIFTY\n"})
            ),
            threading.Thread(
                target=other.complete,
                args=("edit_file", {"path": "n.txt", "old_text": "\n75\n", "new_text": "\n7\n5\n"}),
            ),
        ]
        for edit in edits:
            edit.start()
        for edit in edits:
            edit.join()
        assert (root / "n.txt").read_bytes() == lines.replace(b"\n50\n", b"\nFIFTY\n").replace(b"\n75\n", b"\n7\n5\n")


def p22(agent: Agent, root: Path) -> None:
    put(root, "s.sh", b"#!/bin/sh\necho a\n")
    (root / "s.sh").chmod(0o755)
    agent.complete("edit_file", path="s.sh", old_text="echo a", new_text="echo b")
    agent.complete("write_file", path="s.sh", content="#!/bin/sh\n")
    agent.complete("write_file", path="new", content="")
    mask = os.umask(0)
    os.umask(mask)
    assert [(root / name).stat().st_mode & 0o7777 for name in ("s.sh", "new")] == [0o755, 0o666 & ~mask]


def p23(agent: Agent, root: Path) -> None:
    put(root, "g.txt", b"a\n")
    if os.geteuid() == 0:
        os.chown(root / "g.txt", 1000, 33)
    (root / "g.txt").chmod(0o2640)
    os.setxattr(root / "g.txt", "user.k", b"v")
    before = (root / "g.txt").stat()
    agent.complete("edit_file", path="g.txt", old_text="a", new_text="b")
    after = (root / "g.txt").stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
    assert os.getxattr(root / "g.txt", "user.k") == b"v"


def p25(agent: Agent, root: Path) -> None:
    put(root, "a.md", b"line 1\n")
    os.link(root / "a.md", root / "b.md")
    error = agent.fail("edit_file", path="a.md", old_text="line 1", new_text="line 2")
    assert "2 hard links" in error.message
    assert ((root / "a.md").read_bytes(), (root / "b.md").read_bytes()) == (b"line 1\n", b"line 1\n")


def p26(agent: Agent, root: Path) -> None:
    """With content as large as a call may carry; tests/tools/test_crash.py has the sixty megabytes."""
    whole = {letter: letter.encode() * 3_000_000 for letter in "ab"}
    fleet = Fleet(agent.fleet.url, agent.fleet.state, f"crash-{agent.session}", lease_s=1.5)
    try:
        writer = fleet.agent()
        fleet.start_worker()
        writer.complete("write_file", path="big.txt", content=whole["a"].decode())
        for number in range(2):
            writer.push(f"c{number}", "write_file", {"path": "big.txt", "content": whole["b"].decode()})
            time.sleep(0.01 * (number + 1))
            worker = fleet.workers[-1]
            worker.process.kill()
            worker.wait()
            assert (writer.workspace / "big.txt").read_bytes() in whole.values()
            fleet.start_worker()
            fleet.wait_replies(writer.session, number + 2)
        assert writer.complete("list_directory", path=".")["entries"] == ["big.txt"]
        writer.complete("write_file", path="small.txt", content="x")
        assert sorted(os.listdir(writer.workspace)) == ["big.txt", "small.txt"]
    finally:
        fleet.end()


def p28(agent: Agent, root: Path) -> None:
    agent.complete("write_file", path="a/b/c.txt", content="hi")
    assert "not a directory" in agent.fail("write_file", path="a/b/c.txt/d.txt", content="x").message
    assert "is a directory" in agent.fail("write_file", path="a/b", content="x").message
    assert (root / "a/b/c.txt").read_bytes() == b"hi"


def p29(agent: Agent, root: Path) -> None:
    block = b"line\n" * 200_000
    with open(root / "big.txt", "wb") as file:
        for _ in range(300):
            file.write(block)
    with open(root / "sparse.txt", "wb") as file:
        file.truncate(3 * 1024**3)
    put(root, "one.txt", b"a" * 5 * 1024 * 1024)
    output = agent.complete("read_file", path="big.txt")
    assert (output["truncated"], output["bytes"], output["next_offset"]) == (True, 300_000_000, 209_716)
    output = agent.complete("read_file", path="big.txt", offset=59_999_999, limit=5)
    assert (output["text"], output["next_offset"]) == ("line\nline\n", None)
    assert agent.fail("read_file", path="sparse.txt").code == "not_text"
    output = agent.complete("read_file", path="one.txt")
    assert output["notes"] == ["line 1 is cut after 1048576 bytes; go on with byte_offset=1048576"]
    assert agent.complete("read_file", path="one.txt", byte_offset=5 * 1024 * 1024 - 3)["text"] == "aaa"


def p31(agent: Agent, root: Path) -> None:
    os.mkfifo(root / "p")
    (root / "z").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(root / "s")) if len(str(root)) < 90 else bind_there(root)
        assert "FIFO" in agent.fail("read_file", path="p").message
        assert agent.fail("read_file", path="z").code == "not_found"
        assert "socket" in agent.fail("read_file", path="s").message
        assert "FIFO" in agent.fail("write_file", path="p", content="x").message
        assert "FIFO" in agent.fail("edit_file", path="p", old_text="x", new_text="y").message


def bind_there(root: Path) -> None:
    """A socket at a path that is too long for an address."""
    script = "import socket; socket.socket(socket.AF_UNIX).bind('s')"
    subprocess.run([sys.executable, "-c", script], cwd=root, check=True)


def p32(agent: Agent, root: Path) -> None:
    put(root, "notes.txt", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")
    put(root, "photo.jpg", b"plain\n")
    error = agent.fail("read_file", path="notes.txt")
    assert (error.code, error.message) == ("not_text", "notes.txt: binary file (PNG), 16 bytes")
    assert agent.complete("read_file", path="photo.jpg")["text"] == "plain\n"


def p34(agent: Agent, root: Path) -> None:
    evil = root.parent / f"{root.name}-evil"
    put(evil, "secret", b"s")
    (evil / "sub").mkdir()
    for name in ("secret", "missing"):
        for path in (str(evil / name), f"../{evil.name}/{name}"):
            error = agent.fail("read_file", path=path)
            assert (error.code, error.message) == ("not_found", f"{path}: no such file or directory")
            assert agent.deny("write_file", path=path, content="x").code == "forbidden"
    assert agent.deny("run_command", command="cat secret", cwd=f"../{evil.name}").code == "forbidden"
    for pattern in ("../**/*", "/etc/*"):
        assert agent.fail("search_files", path=".", pattern=pattern).code == "not_found"
    assert agent.fail("list_directory", path="..").code == "not_found"
    assert sorted(os.listdir(evil)) == ["secret", "sub"]


def p35(agent: Agent, root: Path) -> None:
    (root / "leak").symlink_to("/etc/passwd")
    (root / "d").symlink_to("/etc")
    for tool, args in (
        ("read_file", {"path": "leak"}),
        ("read_file", {"path": "d/passwd"}),
        ("read_file", {"path": "d/none"}),
        ("list_directory", {"path": "d"}),
        ("search_files", {"path": "d", "pattern": "root", "content_search": True}),
    ):
        assert agent.fail(tool, args).message == f"{args['path']}: no such file or directory"
    assert agent.deny("write_file", path="d/new", content="x").code == "forbidden"
    assert found(agent, ".", "root", content_search=True) == []


def p37(agent: Agent, root: Path) -> None:
    real = root.parent / f"{root.name}-real"
    root.rmdir()
    real.mkdir()
    root.symlink_to(real)
    agent.complete("write_file", path=str(root / "a.txt"), content="x")
    assert agent.complete("read_file", path=str(real / "a.txt"))["text"] == "x"
    agent.complete("write_file", path="newdir/b.txt", content="y")
    assert (real / "newdir/b.txt").read_bytes() == b"y"


def p38(agent: Agent, root: Path) -> None:
    put(root, "ok.txt", b"x\n")
    (root / "dang").symlink_to("missing")
    (root / "loop").symlink_to("loop")
    (root / "priv").mkdir(mode=0)
    output = agent.complete("list_directory", path=".")
    assert output["entries"] == ["dang", "loop", "ok.txt", "priv/"]
    assert output["marks"]["dang"] == "broken link to missing"
    assert output["marks"]["loop"].startswith("broken link")
    assert found(agent, ".", "*") == ["dang", "loop", "ok.txt"]


def p40(agent: Agent, root: Path) -> None:
    put(root, "f", b"foo(\n")
    error = agent.fail("search_files", path=".", pattern="foo(", content_search=True)
    assert (error.code, error.message) == ("invalid_call", "invalid regex: unclosed group at position 3")
    assert found(agent, ".", "foo(", content_search=True, literal=True) == ["f"]


def p41(agent: Agent, root: Path) -> None:
    put(root, "r.txt", b"a" * 40 + b"!\n")
    for pattern in ("(a+)+$", "(a|aa)+$"):
        assert found(agent, ".", pattern, content_search=True) == []


def p43(agent: Agent, root: Path) -> None:
    put(root, ".github/workflows/ci.yml", b"")
    assert found(agent, ".", ".github/**/*.yml") == found(agent, ".", "**/*.yml") == [".github/workflows/ci.yml"]


def p44(agent: Agent, root: Path) -> None:
    put(root, "src/app/[locale]/(auth)/page.tsx", b"")
    put(root, "a b/c d.txt", b"")
    page = ["src/app/[locale]/(auth)/page.tsx"]
    assert found(agent, "src/app/[locale]/(auth)", "*.tsx") == page
    assert found(agent, ".", page[0]) == page
    assert found(agent, "a b", "c d.txt") == ["a b/c d.txt"]


def p46(agent: Agent, root: Path) -> None:
    for path in ("top.py", "src/app/main.py", "src/x.ts", "src/y.tsx"):
        put(root, path, b"")
    assert found(agent, ".", "**/*.py") == found(agent, ".", "*.py") == ["src/app/main.py", "top.py"]
    assert found(agent, ".", "src/**/*.py") == ["src/app/main.py"]
    assert found(agent, ".", "*.{ts,tsx}") == ["src/x.ts", "src/y.tsx"]
    assert agent.fail("search_files", path=".", pattern="!(a).py").code == "invalid_call"


def p47(agent: Agent, root: Path) -> None:
    for directory in range(40):
        home = root / f"node_modules/m{directory:03}"
        home.mkdir(parents=True)
        for number in range(100):
            os.close(os.open(home / f"f{number:02}.js", os.O_CREAT | os.O_WRONLY))
    put(root, "node_modules/z.js", b"x\n" * 1000)
    output = agent.complete("search_files", path=".", pattern="**/*")
    assert (len(output["matches"]), output["truncated"]) == (1000, True)
    assert output["reason"] == "count: 1000 of 4001 matches are shown"
    output = agent.complete("search_files", path=".", pattern="x", content_search=True)
    assert (len(output["matches"]), output["reason"]) == (200, "count: there are more than 200 matching lines")
    put(root, ".gitignore", b"node_modules/\n")
    assert found(agent, ".", "**/*") == [".gitignore"]

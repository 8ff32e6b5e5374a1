"""Files after a writer was killed, and between writers in several processes."""

from __future__ import annotations

import fcntl
import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.tools.conftest import Files
from worker.workspace import Conflict, Workspace, is_temp
from worker.workspace.replacement import Replacement
from worker.workspace.temps import new_name

HERE = Path(__file__).parents[2]

WRITERS = """
import os, sys
from pathlib import Path
from tests.tools.conftest import Files
if sys.argv[2] == "named":
    os.O_TMPFILE = os.O_DIRECTORY  # as on a file system that has no unnamed files
print("ready", flush=True)
for line in sys.stdin:
    content = line.strip() * 60_000_000
    pid = os.fork()
    if pid == 0:
        Files(Path(sys.argv[1])).write("big.txt", content)
        os._exit(0)
    print(pid, flush=True)
    os.waitpid(pid, 0)
    print("gone", flush=True)
"""

EDITOR = """
import sys
from pathlib import Path
from tests.tools.conftest import Files
from worker.failures import CallFailed
files = Files(Path(sys.argv[1]), sys.argv[2])
print("ready", flush=True)
for line in sys.stdin:
    path, number = line.split()
    try:
        files.edit(path, f"\\n{number}\\n", f"\\nNEW{number}\\n")
        print("ok", flush=True)
    except CallFailed as failure:
        print(failure.code, flush=True)
"""


def start(script: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A Python process that runs the script, once it says that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments], cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def ask(process: subprocess.Popen[bytes], line: str) -> bytes:
    """Its answer to a line."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line.encode())
    process.stdin.flush()
    return process.stdout.readline()


def end(process: subprocess.Popen[bytes]) -> None:
    """Kills it and closes its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()


@pytest.mark.parametrize("temporary", ["unnamed", "named"])
def test_killed_in_the_middle_of_sixty_megabytes(files: Files, temporary: str) -> None:
    """Twenty times in all: the file is the old or the new one, and what the writer left is seen by nobody and swept."""
    chance = random.Random(4)
    whole = {"o": hashlib.sha256(b"o" * 50_000_000).digest()}
    outcomes = set()
    writers = start(WRITERS, str(files.root), temporary)
    try:
        for letter in "abcdefghij":
            whole[letter] = hashlib.sha256(letter.encode() * 60_000_000).digest()
            files.put("big.txt", b"o" * 50_000_000)
            pid = int(ask(writers, f"{letter}\n"))
            time.sleep(chance.uniform(0, 0.2))
            os.kill(pid, signal.SIGKILL)
            assert writers.stdout is not None
            assert writers.stdout.readline() == b"gone\n"
            data = files.get("big.txt")
            kind = data[:1].decode()
            assert kind in ("o", letter)
            assert hashlib.sha256(data).digest() == whole[kind]
            outcomes.add(kind == "o")
            assert files.list().entries == ["big.txt"]
            assert files.found("*") == ["big.txt"]
            left = len(os.listdir(files.root)) - 1
            assert files.workspace.sweep() == left
            assert os.listdir(files.root) == ["big.txt"]
    finally:
        end(writers)
    assert True in outcomes


def test_sweeping_spares_writers_that_live(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)  # as on a file system that has no unnamed files
    place = files.workspace.place(files.workspace.locate("f"))
    living = Replacement(files.workspace, place, threading.Event())
    living.begin()
    living.write(b"wh")
    dead = files.root / os.fsdecode(new_name())
    subprocess.run(["sh", "-c", 'echo half > "$0"', str(dead)], check=True)
    os.rename(dead, files.root / f".toolreef-tmp.elsewhere.{2**22}.5.abc")
    (files.root / ".toolreef-tmp.odd").write_bytes(b"")
    with Workspace.open(str(files.root)) as other:
        assert other.sweep() == 2
    assert [is_temp(os.fsencode(name)) for name in os.listdir(files.root)] == [True]
    living.write(b"ole")
    living.commit()
    living.close()
    assert files.tree() == {"f": b"whole"}


def test_a_later_call_in_the_directory_sweeps_it(files: Files) -> None:
    (files.root / "d").mkdir()
    (files.root / "d/.toolreef-tmp.gone.1.2.3").write_bytes(b"half")
    files.write("d/f", "x")
    assert files.tree() == {"d": None, "d/f": b"x"}


def test_two_processes_edit_one_file(files: Files) -> None:
    (files.root / "link.txt").symlink_to("n.txt")
    editors = [start(EDITOR, str(files.root), f"s{number}") for number in range(2)]
    lines = b"".join(b"%d\n" % number for number in range(1, 101))
    try:
        for turn in range(50):
            files.put("n.txt", lines)
            paths = ("./n.txt", "link.txt" if turn % 2 else "n.txt")
            for editor, path, number in zip(editors, paths, (50, 75), strict=True):
                assert editor.stdin is not None
                editor.stdin.write(f"{path} {number}\n".encode())
                editor.stdin.flush()
            answers = [editor.stdout.readline() for editor in editors if editor.stdout]
            assert answers == [b"ok\n", b"ok\n"]
            assert files.get("n.txt") == lines.replace(b"\n50\n", b"\nNEW50\n").replace(b"\n75\n", b"\nNEW75\n")
    finally:
        for editor in editors:
            end(editor)


def test_a_lock_that_is_never_given_up_is_told(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    files.put("f", b"old")
    init = Replacement.__init__
    monkeypatch.setattr(Replacement, "__init__", lambda self, *args: init(self, *args, wait_s=0.2))
    with open(files.root / "f", "rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        failure = files.fail("conflict", "write_file", path="f", content="new")
        assert failure.retryable
        assert "another writer" in str(failure)
    assert files.write("f", "new").bytes == 3


def test_a_writer_that_does_not_lock_is_noticed(files: Files) -> None:
    files.put("f", b"old")
    replacement = Replacement(files.workspace, files.workspace.place(files.workspace.locate("f")), threading.Event())
    replacement.begin()
    replacement.write(b"new")
    with open(files.root / "f", "ab") as file:
        file.write(b" and more")
    with pytest.raises(Conflict, match="had 3 bytes, it has 12"):
        replacement.commit()
    replacement.close()
    assert files.tree() == {"f": b"old and more"}

"""search_files: bounded, honest about what is missing, never outside."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from contracts.tools import SearchFilesArgs
from tests.fleet import wait_until
from tests.tools.conftest import Files, as_nobody, give_to_nobody
from worker.failures import CallFailed
from worker.tools import ripgrep, search_files


def lines(files: Files, pattern: str, path: str = ".", **args: object) -> list[tuple[str, int, str]]:
    found = files.search(pattern, path, content_search=True, **args)
    return [(match.path, match.line, match.text) for match in found.matches]


def test_names(files: Files) -> None:
    for path in ("top.py", "src/app/main.py", "src/x.ts", "src/y.tsx", ".github/workflows/ci.yml"):
        files.put(path, b"")
    assert files.found("*.py") == ["src/app/main.py", "top.py"]
    assert files.found("**/*.py") == ["src/app/main.py", "top.py"]
    assert files.found("src/**/*.py") == ["src/app/main.py"]
    assert files.found("*.{ts,tsx}") == ["src/x.ts", "src/y.tsx"]
    assert files.found(".github/**/*.yml") == [".github/workflows/ci.yml"]
    assert files.found("**/*.yml") == [".github/workflows/ci.yml"]
    assert files.found("*.py", "src") == ["src/app/main.py"]
    assert files.found("app/*.py", "src") == ["src/app/main.py"]
    assert files.found(f"{files.root}/src/*.ts") == ["src/x.ts"]
    assert files.found("../top.py", "src") == ["top.py"]
    assert files.found("*.PY", case_sensitive=False) == ["src/app/main.py", "top.py"]
    assert files.found("top.py", "top.py") == ["top.py"]
    assert files.found("*.ts", "top.py") == []
    assert files.found("src") == files.found("src/") == ["src/"]
    assert files.search("nope/*.py").warnings == ["there is no directory 'nope' where the pattern wants one"]


def test_an_existing_literal_path_wins(files: Files) -> None:
    page = "src/app/[locale]/(auth)/page.tsx"
    for path in (page, "a b/c d.txt", "src/app/l/(auth)/page.tsx", "{x,y}.txt", "x.txt", "st*r", "stair"):
        files.put(path, b"")
    assert files.found("*.tsx", "src/app/[locale]/(auth)") == [page]
    assert files.found(page) == [page]
    assert files.found("src/app/[locale]/(auth)/*.tsx") == [page]
    assert files.found("c d.txt", "a b") == ["a b/c d.txt"]
    assert files.found("{x,y}.txt") == ["{x,y}.txt"]
    assert files.found("st*r") == ["st*r"]
    assert files.found("s*r") == ["st*r", "stair"]
    assert files.found("**/[locale]/**/page.tsx") == ["src/app/l/(auth)/page.tsx"]
    (files.root / "src/app/l/(auth)/page.tsx").unlink()
    assert files.found("**/[locale]/**/page.tsx") == [page]
    assert files.found("st*r", literal=True) == ["st*r"]


@pytest.mark.parametrize("pattern", ["../**/*", "/etc/*", "../ws-evil/*", "a/../../*", "/*"])
def test_patterns_that_lead_out_find_nothing_to_tell(files: Files, tmp_path: Path, pattern: str) -> None:
    (tmp_path / "ws-evil").mkdir()
    (tmp_path / "ws-evil/secret").write_bytes(b"")
    with pytest.raises(CallFailed) as caught:
        files.search(pattern)
    assert caught.value.code in ("not_found", "invalid_call")
    assert "secret" not in str(caught.value)


def test_links_are_neither_followed_out_nor_for_ever(files: Files, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/secret.txt").write_bytes(b"root:x:0\n")
    files.put("in/a.txt", b"root:y:1\n")
    for name, target in (
        ("d", str(tmp_path / "out")),
        ("leak.txt", str(tmp_path / "out/secret.txt")),
        ("up", ".."),
        ("loop", "."),
        ("again.txt", "in/a.txt"),
        ("dang.txt", "none"),
    ):
        (files.root / name).symlink_to(target)
    assert lines(files, "root") == [("in/a.txt", 1, "root:y:1")]
    found = files.search("*.txt").matches
    assert [(match.path, match.mark) for match in found] == [
        ("again.txt", "link"),
        ("dang.txt", "broken link"),
        ("in/a.txt", None),
        ("leak.txt", "link that leads outside of the workspace"),
    ]
    for path in ("d", "leak.txt", "up", "d/secret.txt"):
        for content_search in (True, False):
            files.fail("not_found", "search_files", path=path, pattern="root", content_search=content_search)
    assert lines(files, "root", "again.txt") == [("again.txt", 1, "root:y:1")]
    assert files.opened == ["in/a.txt", "in/a.txt"]


def test_content(files: Files) -> None:
    files.put("a.txt", b"one\ntwo foo\nthree\nfoo four\n")
    files.put("b/c.txt", "x\r\nß foo\r\n".encode())
    output = files.search("foo", content_search=True, context_lines=1)
    assert [(m.path, m.line, m.column, m.text, m.before, m.after) for m in output.matches] == [
        ("a.txt", 2, 5, "two foo", ["one"], ["three"]),
        ("a.txt", 4, 1, "foo four", ["three"], []),
        ("b/c.txt", 2, 3, "ß foo", ["x"], []),
    ]
    assert (output.total, output.truncated, output.warnings) == (3, False, [])
    assert files.opened == [".", "a.txt", "b/c.txt"]
    assert lines(files, "foo$") == [("a.txt", 2, "two foo"), ("b/c.txt", 2, "ß foo")]
    assert lines(files, "FOO") == []
    assert len(lines(files, "FOO", case_sensitive=False)) == 3
    assert lines(files, "t.o", literal=True) == []
    assert lines(files, "^t(wo|hree)") == [("a.txt", 2, "two foo"), ("a.txt", 3, "three")]


@pytest.mark.parametrize("pattern", ["-f/etc/passwd", "--files", "-e", "--pre=cat", "--", "-"])
def test_patterns_are_never_options(files: Files, pattern: str) -> None:
    files.put("f", f"x {pattern} y\n".encode())
    files.put(pattern.replace("/", "_"), b"")
    assert lines(files, pattern) == [("f", 1, f"x {pattern} y")]


@pytest.mark.parametrize(
    "pattern,words",
    [
        ("foo(", "invalid regex: unclosed group at position 3"),
        ("a)b", "at position 1"),
        ("x[z-a]", "at position 2"),
        ("*a", "at position 0"),
        ("(?=x)", "look-around"),
        ("(a)\\1", "backreferences"),
        ("a\nb", "invalid regex"),
        ("a{1000}{1000}{100}", "invalid regex"),
    ],
)
def test_an_invalid_regex_is_an_error(files: Files, pattern: str, words: str) -> None:
    files.put("f", b"foo(\nbar\n")
    failure = files.fail("invalid_call", "search_files", path=".", pattern=pattern, content_search=True)
    assert words in str(failure)
    assert "literal=true" in str(failure.hint)
    assert lines(files, "foo(", literal=True) == [("f", 1, "foo(")]


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(a*)*b", "(.*)(.*)(.*)(.*)x"])
def test_no_regex_takes_for_ever(files: Files, pattern: str) -> None:
    files.put("r.txt", b"a" * 5000 + b"!\n")
    began = time.monotonic()
    assert lines(files, pattern) == []
    assert time.monotonic() - began < 5


def test_encodings_and_long_lines(files: Files) -> None:
    files.put("bom", b"\xef\xbb\xbfhello foo\n")
    files.put("latin", b"caf\xe9 foo\n")
    files.put("u16", "αα\nfoo β\n".encode("utf-16"))
    files.put("long", b"a" * 3_000_000 + b" foo " + b"b" * 1000)
    files.put("binary", b"foo\0\n")
    found = {match.path: match for match in files.search("foo", content_search=True).matches}
    assert sorted(found) == ["bom", "latin", "long", "u16"]
    assert (found["bom"].text, found["latin"].text, found["u16"].text) == ("hello foo", "café foo", "foo β")
    long = found["long"]
    assert (long.column, long.clipped, len(long.text)) == (3_000_002, True, 506)
    assert long.text == "..." + "a" * 149 + " foo " + "b" * 346 + "..."


def test_binary_files_are_told(files: Files) -> None:
    files.put("d/late.dat", b"foo\n" + b"x" * 200_000 + b"\n\0\nfoo\n")
    files.put("d/bin.dat", b"foo\0\nfoo\n")
    files.put("d/zz.txt", b"foo\n")
    output = files.search("foo", "d", content_search=True)
    assert [(match.path, match.line) for match in output.matches] == [("d/late.dat", 1), ("d/zz.txt", 1)]
    told = "matches and is binary from byte"
    assert output.warnings == [f"d/late.dat {told} 200005 on; what follows is not shown"]
    output = files.search("foo", "d/bin.dat", content_search=True)
    assert (output.matches, output.warnings) == ([], [f"d/bin.dat {told} 3 on; what follows is not shown"])
    assert files.search("none", "d/bin.dat", content_search=True).warnings == []


def test_limits_are_told(files: Files) -> None:
    for number in range(30):
        files.put(f"d{number % 3}/f{number:02}.txt", b"x\n" * 10)
    output = files.search("*.txt", limit=5)
    assert [match.path for match in output.matches] == [f"d0/f{number:02}.txt" for number in (0, 3, 6, 9, 12)]
    assert (output.total, output.truncated, output.reason) == (30, True, "count: 5 of 30 matches are shown")
    output = files.search("x", content_search=True, limit=7)
    assert (len(output.matches), output.total, output.truncated) == (7, None, True)
    assert output.reason == "count: there are more than 7 matching lines"
    assert not files.search("x", "d0/f00.txt", content_search=True, limit=10).truncated
    files.put("wide", (b"y" * 400 + b"\n") * 4000)
    output = files.search("y", "wide", content_search=True, limit=4000)
    assert output.truncated
    assert output.reason.startswith("bytes: ")
    assert sum(len(match.text) for match in output.matches) <= 512 * 1024


def test_ignore_files_are_honoured_and_told(files: Files, tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_bytes(b"*\n")  # a stranger's, above the workspace
    files.put(".gitignore", b"*.log\nnode_modules/\n/src/gen/*.py\n!keep.log\n")
    for path in ("x.log", "keep.log", "node_modules/m/i.js", "src/gen/g.py", "src/gen/sub/h.py", "gen/g.py", ".git/c"):
        files.put(path, b"needle\n")
    everything = [".gitignore", "gen/g.py", "keep.log", "src/gen/sub/h.py"]
    assert files.found("*") == everything
    assert [path for path, _, _ in lines(files, "needle")] == everything[1:]
    note = ["there are matches among ignored files; ignore_files=false shows them"]
    assert files.search("x.log").warnings == note
    assert files.search("needle", "src/gen", content_search=True).total == 1
    (files.root / "src/gen/sub/h.py").unlink()
    assert files.search("needle", "src", content_search=True).warnings == note
    assert files.found("*.log", ignore_files=False) == ["keep.log", "x.log"]
    # What is named itself is searched, ignored or not.
    assert files.found("*.js", "node_modules") == ["node_modules/m/i.js"]
    assert files.found("node_modules/**/*.js") == ["node_modules/m/i.js"]
    assert [path for path, _, _ in lines(files, "needle", "x.log")] == ["x.log"]
    assert files.found("*", ".git") == [".git/c"]


def test_what_can_not_be_read_is_told(files: Files) -> None:
    files.put("ok.txt", b"needle\n")
    files.put("priv/x.txt", b"needle\n")
    files.put("closed.txt", b"needle\n")
    (files.root / "priv").chmod(0)
    (files.root / "closed.txt").chmod(0)
    give_to_nobody(files.root)
    with as_nobody():
        content = files.search("needle", content_search=True)
        names = files.search("*.txt")
    (files.root / "priv").chmod(0o700)
    assert [match.path for match in content.matches] == ["ok.txt"]
    assert sorted(content.warnings) == [
        "not searched: closed.txt: permission denied",
        "not searched: priv: permission denied",
    ]
    assert [match.path for match in names.matches] == ["closed.txt", "ok.txt"]
    assert names.warnings == ["not searched: priv: permission denied"]


def test_names_of_any_bytes(files: Files) -> None:
    files.put(b"bad\xff.txt", b"needle\n")
    files.put("new\nline.txt", b"needle\n")
    assert files.found("*.txt") == ["bad\\xff.txt", "new\nline.txt"]
    assert [path for path, _, _ in lines(files, "needle")] == ["bad\\xff.txt", "new\nline.txt"]
    assert files.found("bad\\xff.txt") == ["bad\\xff.txt"]


def test_a_missing_engine_is_told(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    files.put("f", b"x\n")
    ripgrep.binary.cache_clear()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    files.fail("unavailable", "search_files", path=".", pattern="x", content_search=True)
    ripgrep.binary.cache_clear()


def slow_engine(home: Path) -> Path:
    """An engine that prints one match and then nothing more."""
    script = home / "rg"
    script.write_text("#!/bin/sh\nprintf './f\\0001:1:0:x\\n'\nprintf './f\\000'\nexec sleep 1000\n")
    script.chmod(0o755)
    return script


def engines_of(script: Path) -> list[str]:
    """Processes that the stand-in became, also dead ones that nobody waited for."""
    found = []
    for pid in os.listdir("/proc"):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text() if pid.isdigit() else ""
        except (FileNotFoundError, ProcessLookupError):
            continue
        if stat and int(stat.rpartition(")")[2].split()[1]) == os.getpid():
            found.append(stat.partition(" (")[2].partition(")")[0])
    return [name for name in found if name in ("sleep", "rg", "sh")]


@pytest.mark.parametrize("content_search", [True, False])
def test_the_end_of_the_time_leaves_results_and_no_engine(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content_search: bool
) -> None:
    files.put("f", b"x\n")
    script = slow_engine(tmp_path)
    monkeypatch.setattr(ripgrep, "binary", lambda: str(script))
    monkeypatch.setattr(search_files, "BUDGET_S", 0.5)
    output = files.search("x" if content_search else "f", content_search=content_search)
    assert [match.path for match in output.matches] == ["f"]
    assert (output.truncated, output.total) == (True, None)
    assert output.reason == "time: the search was stopped before its end"
    assert engines_of(script) == []


def test_a_cancelled_search_leaves_no_engine(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.put("f", b"x\n")
    script = slow_engine(tmp_path)
    monkeypatch.setattr(ripgrep, "binary", lambda: str(script))

    async def main() -> None:
        args = SearchFilesArgs(path=".", pattern="x", content_search=True)
        task = asyncio.create_task(search_files.run(args, files.context()))
        await asyncio.to_thread(wait_until, lambda: engines_of(script) == ["sleep"], "the engine to run")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert engines_of(script) == []


def test_text_is_only_told_of_what_lies_inside(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that was led out by a link swapped in meanwhile names places that are not there, or not the same."""
    (tmp_path / "secret").write_bytes(b"outside\n")
    files.put("f", b"inside\nmore\n")
    (files.root / "l").symlink_to(tmp_path / "secret")
    script = tmp_path / "rg"
    script.write_text("#!/bin/sh\nprintf './l\\0001:1:0:outside\\n./f\\0009:1:3:outside\\n./none\\0001:1:0:x\\n'\n")
    script.chmod(0o755)
    monkeypatch.setattr(ripgrep, "binary", lambda: str(script))
    output = files.search("x", content_search=True)
    assert output.matches == []
    assert output.warnings == [f"{name} changed while it was searched" for name in ("f", "l", "none")]


def test_an_engine_that_dies_is_told(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "rg"
    script.write_text("#!/bin/sh\nkill -SEGV $$\n")
    script.chmod(0o755)
    monkeypatch.setattr(ripgrep, "binary", lambda: str(script))
    output = files.search("x", content_search=True)
    assert (output.truncated, output.reason) == (True, "engine: it ended by status -11")

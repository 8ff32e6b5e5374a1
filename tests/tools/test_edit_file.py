"""edit_file: one place changes, every other byte stays."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.tools.conftest import Files
from worker.failures import CallFailed

BE = b"\xfe\xff"


@pytest.mark.parametrize(
    "before,old,new,after",
    [
        # A byte-order mark stays, whether it stands beside the edit or not.
        (b"\xef\xbb\xbfhello\nworld\n", "world", "there", b"\xef\xbb\xbfhello\nthere\n"),
        (b"\xef\xbb\xbfhello\nworld\n", "hello", "hallo", b"\xef\xbb\xbfhallo\nworld\n"),
        # Line endings stay, and new lines take those of their neighbours.
        (b"a\r\nb\r\nc\r\n", "b", "B", b"a\r\nB\r\nc\r\n"),
        (b"one\r\ntwo\r\nend\r\n", "one\ntwo", "1\n2", b"1\r\n2\r\nend\r\n"),
        (b"one\r\ntwo\r\nend\r\n", "two", "2\n2.5", b"one\r\n2\r\n2.5\r\nend\r\n"),
        (b"one\r\ntwo", "two", "2\n3", b"one\r\n2\r\n3"),
        (b"a\r\nb\r\nc\r\n", "\nb\n", "\nB\n", b"a\r\nB\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "\nb", "\nB\nB2", b"a\r\nB\r\nB2\r\nc\r\n"),
        (b"a\nb\nc\n", "a\r\nb", "A\r\nB", b"A\nB\nc\n"),
        (b"a\r\nb\nc\r\nd\n", "a\nb\nc\nd", "a\nB\nc\nd", b"a\r\nB\nc\r\nd\n"),
        (b"a\r\nb\nc\r\nd\n", "b\nc\nd\n", "b\nnew\nc\nd\n", b"a\r\nb\nnew\nc\r\nd\n"),
        (b"a\r\nb\n", "b", "b\nc", b"a\r\nb\nc\n"),
        (b"a\nb\r\n", "a", "a\nc", b"a\nc\nb\r\n"),
        # What spells its own line endings is taken as it is.
        (b"a\r\nb\r\n", "a\r\nb\r\n", "a\nb\n", b"a\nb\n"),
        (b"a\nb\n", "a", "a\r\nx", b"a\r\nx\nb\n"),
        (b"a\rb\n", "\r", "\n", b"a\nb\n"),
        # The end of the file stays as it is.
        (b"x\ny", "x", "X", b"X\ny"),
        (b"alpha\nbeta\n\n", "alpha", "ALPHA", b"ALPHA\nbeta\n\n"),
        (b"x\ny\n", "y\n", "", b"x\n"),
        (b"x", "x", "", b""),
        # Characters are never folded, and nothing in new_text is a template.
        (b"fmt = '%s'\n", "'%s'", "\u2018%s\u2019", b"fmt = \xe2\x80\x98%s\xe2\x80\x99\n"),
        (b"re = OLD;", "OLD", r"'^[sv]d$' $& $$ $` $1 \1 \g<0> \n", rb"re = '^[sv]d$' $& $$ $` $1 \1 \g<0> \n;"),
        (b"func f() {\n\t\treturn\n}\n", "\t\treturn", "\t\treturn 1", b"func f() {\n\t\treturn 1\n}\n"),
        (b"a.b*c(\n", "a.b*c(", "ok", b"ok\n"),
        # Encodings stay.
        ("name=alpha\nk=β\n".encode("utf-16"), "alpha", "ωμέγα", "name=ωμέγα\nk=β\n".encode("utf-16")),
        (
            b"\xfe\xff" + "a\r\nb\r\n".encode("utf-16-be"),
            "a\nb",
            "A\nB",
            b"\xfe\xff" + "A\r\nB\r\n".encode("utf-16-be"),
        ),
        ("a\U0001f600b\n".encode("utf-32"), "\U0001f600", "ß", "aßb\n".encode("utf-32")),
        (b"caf\xe9 cr\xe8me\n", "café", "thé", b"th\xe9 cr\xe8me\n"),
        # Bytes that look like a match across two characters are none.
        (b"\xff\xfe" + "\u4100\u0041\u0100".encode("utf-16-le"), "A", "B", b"\xff\xfe\x00\x41\x42\x00\x00\x01"),
    ],
)
def test_bytes_after(files: Files, before: bytes, old: str, new: str, after: bytes) -> None:
    files.put("f", before)
    output = files.edit("f", old, new)
    assert files.get("f") == after
    assert (output.path, output.bytes) == ("f", len(after))
    assert output.sha256 == files.read("f").sha256


@pytest.mark.parametrize(
    "data,old,code,words",
    [
        (b"aaa", "aa", "not_unique", "occurs 2 times, at lines 1, 1;"),
        (b"x\nabc\nabc\n", "abc", "not_unique", "occurs 2 times, at lines 2, 3;"),
        (b"a\r\nb\na\r\nb\n", "a\nb", "not_unique", "occurs 2 times, at lines 1, 3;"),
        (b"\n\r\n\r", "\n\r", "not_unique", "occurs 2 times, at lines 1, 2;"),
        (b"x" * 5000, "x", "not_unique", "occurs 1000 or more times"),
        (b"abc", "abd", "no_match", "does not occur"),
        (b"", "a", "no_match", "does not occur"),
        (b"caf\xe9", "\u03b2", "no_match", "does not occur"),
        (b"\x7fELF\x00\x00", "ELF", "not_text", "ELF"),
        ("кириллица".encode("cp1251"), "x", "not_text", "can't be told"),
    ],
)
def test_refused_and_unchanged(files: Files, data: bytes, old: str, code: str, words: str) -> None:
    files.put("f", data)
    before = (files.root / "f").stat()
    assert words in str(files.fail(code, "edit_file", path="f", old_text=old, new_text="Z"))  # type: ignore[arg-type]
    assert files.get("f") == data
    assert (files.root / "f").stat().st_ino == before.st_ino
    assert files.opened == ["f"]


@pytest.mark.parametrize("data", [b"abc", b""])
def test_empty_old_text_is_refused(files: Files, data: bytes) -> None:
    files.put("e.txt", data)
    assert "must not be empty" in str(files.fail("invalid_call", "edit_file", path="e.txt", old_text="", new_text="X"))
    files.fail("invalid_call", "edit_file", path="e.txt", edits=[{"old_text": "", "new_text": "X"}])
    assert files.get("e.txt") == data


def test_arguments_that_do_not_go_together(files: Files) -> None:
    files.put("f", b"abc")
    edit = {"old_text": "a", "new_text": "b"}
    wrong: list[dict[str, Any]] = [{"old_text": "a"}, {"new_text": "a"}, {}, {**edit, "edits": [edit]}, {"edits": []}]
    for args in wrong:
        files.fail("invalid_call", "edit_file", path="f", **args)
    assert files.get("f") == b"abc"


@pytest.mark.parametrize(
    "data,old,hint",
    [
        (
            b"f\n\t\treturn 1\n",
            "        return 1",
            "at line 2 but for white space: the file has tabs where old_text has",
        ),
        (
            b"f\n    return 1\n",
            "\treturn 1",
            "at line 2 but for white space: the file has spaces where old_text has tabs",
        ),
        (b"a  =  1\n", "a = 1", "at line 1 but for white space: the number of spaces or line breaks differs"),
        (b"f(a,b)\n", "f(a, b)", "at line 1 but for white space"),
        (
            "x\nsay \u2018hi\u2019\n".encode(),
            "say 'hi'",
            "line 2 but for characters that look alike: the file has U+2018",
        ),
        ("a\u00a0b\n".encode(), "a b", "the file has U+00A0 NO-BREAK SPACE where old_text has U+0020 SPACE"),
        ("a\u200bb\n".encode(), "ab", "U+200B ZERO WIDTH SPACE can't be seen"),
        ("re\u0301sume\u0301\n".encode(), "r\u00e9sum\u00e9", "characters that look alike"),
        (b"Hello World\n", "hello world", "at line 1 but for upper and lower case"),
        (b'say "x"\nand\n', 'say \\"x\\"\\nand', "at line 1 if the backslash escapes"),
        (b"one\ntwo\nthree\n", "one\ntwo\nfour", "its first 2 of 3 lines are there at line 1, then line 3 differs"),
        (b"one\n", "zzz", "read the file again"),
    ],
)
def test_near_misses_are_told_and_never_applied(files: Files, data: bytes, old: str, hint: str) -> None:
    files.put("f", data)
    failure = files.fail("no_match", "edit_file", path="f", old_text=old, new_text="Z")
    assert hint in str(failure.hint)
    assert files.get("f") == data


def test_long_texts_take_no_long_time(files: Files) -> None:
    lines = [f"line {number}" for number in range(40_000)]
    files.put("f", "\r\n".join(lines).encode())
    began = time.process_time()
    files.edit("f", "\n".join(lines[10:]), "\n".join([*lines[10:], "end"]))
    assert files.get("f") == "\r\n".join([*lines, "end"]).encode()
    files.put("same", b"x\n" * 100_000)
    files.fail("no_match", "edit_file", path="same", old_text="x\n" * 100_000 + "y", new_text="")
    files.fail("no_match", "edit_file", path="same", old_text="xy" * 50_000, new_text="")
    assert time.process_time() - began < 20


def test_several_edits_apply_in_order_all_or_none(files: Files) -> None:
    files.put("f", b"one\ntwo\nthree\n")
    edits = [{"old_text": "one", "new_text": "1"}, {"old_text": "1\ntwo", "new_text": "1\n2"}]
    output = files.edit("f", edits=edits)
    assert (files.get("f"), output.line) == (b"1\n2\nthree\n", 1)
    assert output.diff == "--- f\n+++ f\n@@ -1,3 +1,3 @@\n-one\n-two\n+1\n+2\n three\n"
    bad = [{"old_text": "three", "new_text": "3"}, {"old_text": "nine", "new_text": "9"}]
    assert "edit 2 of 2: " in str(files.fail("no_match", "edit_file", path="f", edits=bad))
    assert files.get("f") == b"1\n2\nthree\n"


def test_dry_run_and_line(files: Files) -> None:
    files.put("f", b"1\n2\n3\n4\n5\n6\n7\n8\n9\n")
    output = files.edit("f", "6", "six", dry_run=True)
    assert (output.line, output.diff) == (
        6,
        "--- f\n+++ f\n@@ -3,7 +3,7 @@\n 3\n 4\n 5\n-6\n+six\n 7\n 8\n 9\n",
    )
    assert files.get("f") == b"1\n2\n3\n4\n5\n6\n7\n8\n9\n"
    assert files.edit("f", "6", "six").diff == output.diff


def test_an_edit_to_the_same_text_touches_nothing(files: Files) -> None:
    files.put("f", b"abc")
    before = _written(files.root / "f")
    assert files.edit("f", "b", "b").notes == ["old_text and new_text come to the same; the file was not touched"]
    assert _written(files.root / "f") == before


def _written(path: Path) -> tuple[int, ...]:
    """What a write would change; a read may change the time of the last access."""
    found = path.stat()
    return (found.st_ino, found.st_mode, found.st_nlink, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def test_the_diff_is_capped(files: Files) -> None:
    files.put("f", b"a\n" * 200_000 + b"end\n")
    output = files.edit("f", "end", "x\n" * 100_000)
    assert len(output.diff) < 70_000
    assert "more characters of this diff are left out" in output.diff


def test_multi_byte_encodings_by_name(files: Files) -> None:
    # The second byte of 表 is a backslash in Shift-JIS.
    data = "日本表\\n\n".encode("shift_jis")
    files.put("f", data)
    files.fail("not_text", "edit_file", path="f", old_text="n", new_text="m")
    output = files.edit("f", "\\", "/", encoding="shift_jis")
    assert files.get("f") == "日本表/n\n".encode("shift_jis")
    assert output.line == 1
    failure = files.fail(
        "invalid_call", "edit_file", path="f", old_text="表", new_text="\U0001f600", encoding="shift_jis"
    )
    assert "U+1F600" in str(failure)


def test_too_large(files: Files) -> None:
    with open(files.root / "big", "wb") as file:
        file.truncate(65 * 1024 * 1024)
    files.fail("too_large", "edit_file", path="big", old_text="a", new_text="b")
    files.fail("not_found", "edit_file", path="none", old_text="a", new_text="b")
    files.fail("not_found", "edit_file", path="no/ne", old_text="a", new_text="b")
    assert list(files.tree()) == ["big"]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    before=st.text("ab\r\n\tß€\U0001f600\ufeff", max_size=20),
    old=st.text("ab\r\nß€x", min_size=1, max_size=4),
    new=st.text("ab\r\n$\\é", max_size=6),
    after=st.text("ab\r\n\tß€", max_size=20),
    codec=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]),
)
@example(before="\r", old="\n\r", new="", after="\n", codec="utf-8")
def test_bytes_outside_of_the_match_never_change(before: str, old: str, new: str, after: str, codec: str) -> None:
    data = (before + old + after).encode(codec)
    with tempfile.TemporaryDirectory() as home:
        files = Files(Path(home))
        files.put("f", data)
        try:
            output = files.edit("f", old, new)
        except CallFailed as failure:
            # It stands there more than once, or the bytes are no clear text.
            assert failure.code in ("not_unique", "not_text")  # noqa: PT017
            assert files.get("f") == data
            return
        finally:
            files.workspace.close()
        changed = files.get("f")
    assert len(changed) == output.bytes
    head = before.encode(codec)
    tail = data[len((before + old).encode(codec)) :]
    by_lines = old.replace("\r\n", "\n") in (before + old + after).replace("\r\n", "\n")
    if old.startswith("\n") and before.endswith("\r") and by_lines:
        # A line ending is one thing: the CR before a matched LF goes with it, unless only bytes out of pairs match.
        head = before[:-1].encode(codec)
    assert changed.startswith(head)
    assert changed.endswith(tail)
    middle = changed[len(head) : len(changed) - len(tail)].decode(codec.removesuffix("-sig"))
    assert middle.replace("\r\n", "\n") == new.replace("\r\n", "\n")


def test_concurrent_edits_in_one_process(files: Files) -> None:
    files.put("n.txt", b"".join(b"%d\n" % number for number in range(1, 101)))
    (files.root / "l").symlink_to("n.txt")

    async def main() -> None:
        paths = ["n.txt", "./n.txt", "l", str(files.root / "n.txt")]
        await asyncio.gather(
            *(
                files.run("edit_file", path=paths[n % 4], old_text=f"\n{n}\n", new_text=f"\nn{n}\n")
                for n in range(2, 101, 2)
            )
        )

    asyncio.run(main())
    expected = b"".join(b"%s%d\n" % (b"n" if number % 2 == 0 else b"", number) for number in range(1, 101))
    assert files.get("n.txt") == expected

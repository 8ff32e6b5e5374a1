"""read_file: pages, encodings, kinds of files."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import socket
import time
from pathlib import Path

import pytest

from tests.tools.conftest import Files, as_nobody, give_to_nobody
from worker.tools.pages import MAX_PAGE_BYTES


def test_whole_text(files: Files) -> None:
    data = "eins\nzwei ß\n\n\tdrei".encode()
    files.put("a/b.txt", data)
    output = files.read("a/b.txt")
    assert (output.text, output.encoding, output.sha256, output.total_lines, output.bytes, output.line_endings) == (
        "eins\nzwei ß\n\n\tdrei",
        "utf-8",
        hashlib.sha256(data).hexdigest(),
        4,
        len(data),
        "lf",
    )
    assert (output.next_offset, output.next_byte_offset, output.truncated, output.notes) == (None, None, False, [])
    assert files.opened == ["a/b.txt"]
    assert files.read(str(files.root / "a" / ".." / "a/./b.txt")).text == output.text


@pytest.mark.parametrize(
    "data,text,encoding",
    [
        (b"", "", "utf-8"),
        (b"\xef\xbb\xbfhello\nworld\n", "hello\nworld\n", "utf-8-sig"),
        (b"\xef\xbb\xbf", "", "utf-8-sig"),
        ("a\nβ\U0001f600\n".encode("utf-16"), "a\nβ\U0001f600\n", "utf-16-le"),
        (b"\xfe\xff" + "a\nβ\n".encode("utf-16-be"), "a\nβ\n", "utf-16-be"),
        ("a\nβ\n".encode("utf-32"), "a\nβ\n", "utf-32-le"),
        (b"caf\xe9 \x80 cr\xe8me\n", "café € crème\n", "windows-1252"),
        (b"\x1b[31mred\x1b[0m\x0c\n", "\x1b[31mred\x1b[0m\x0c\n", "utf-8"),
        (b"GIF89a is how it begins\n", "GIF89a is how it begins\n", "utf-8"),
    ],
)
def test_encodings(files: Files, data: bytes, text: str, encoding: str) -> None:
    files.put("f", data)
    output = files.read("f")
    assert (output.text, output.encoding) == (text, encoding)
    assert output.sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    "data,words",
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "PNG"),
        (b"\x7fELF\x02\x01\x01\x00\x00\xff", "ELF"),
        (b"%PDF-1.7\n\xe2\xe3\xcf\xd3\n", "PDF"),
        (b"PK\x03\x04\x14\x00\x00", "ZIP"),
        (b"\x1f\x8b\x08\x00\x00", "gzip"),
        (b"text and \x00 then more", "NUL"),
        (b"\x01\x02\xff\xfe\x80", "binary"),
        ("кириллица".encode("cp1251"), "can't be told"),
        ("日本語の文".encode("shift_jis"), "can't be told"),
        ("größer ".encode() + b"\xe4", "UTF-8 except"),
        ("plain".encode("utf-16-le"), "UTF-16"),
    ],
)
def test_what_is_no_text_is_refused_by_name_and_size(files: Files, data: bytes, words: str) -> None:
    files.put("f.txt", data)
    failure = files.fail("not_text", "read_file", path="f.txt")
    assert words in str(failure)
    assert f"{len(data)} bytes" in str(failure)


def test_a_named_encoding_is_taken(files: Files) -> None:
    files.put("sjis.txt", "日本語\n".encode("shift_jis"))
    assert files.read("sjis.txt", encoding="shift_jis").text == "日本語\n"
    files.put("bare16", "plain\n".encode("utf-16-le"))
    assert files.read("bare16", encoding="utf-16-le").text == "plain\n"
    assert "no text encoding" in str(files.fail("invalid_call", "read_file", path="bare16", encoding="nope"))
    files.fail("invalid_call", "read_file", path="bare16", encoding="unicode_escape")
    files.fail("not_text", "read_file", path="sjis.txt", encoding="utf-8")


@pytest.mark.parametrize(
    "data,lines,endings",
    [
        (b"a\r\nb\r\n", 2, "crlf"),
        (b"a\r\nb\n", 2, "mixed"),
        (b"a\rb\r", 1, None),
        ("a\u2028b\x0bc\x0cd\x85".encode(), 1, None),
        (b"\n\n\n", 3, "lf"),
        (b"a", 1, None),
        (b"\n", 1, "lf"),
        (b"\xef\xbb\xbf", 0, None),
        ("a\r\nb\r\nc".encode("utf-16"), 3, "crlf"),
        # A line feed whose bytes also stand across two other characters.
        ("\u0a00\u000a\u0a41".encode("utf-16-be"), None, None),
    ],
)
def test_only_lf_and_crlf_end_a_line(files: Files, data: bytes, lines: int | None, endings: str | None) -> None:
    if lines is None:
        data = b"\xfe\xff" + data
        lines, endings = 2, "lf"
    files.put("f", data)
    output = files.read("f")
    assert (output.total_lines, output.line_endings) == (lines, endings)


def test_ranges_of_lines(files: Files) -> None:
    files.put("n", b"".join(b"%d\r\n" % number for number in range(1, 101)))
    output = files.read("n", offset=10, limit=2)
    assert (output.text, output.next_offset, output.total_lines, output.truncated) == ("10\r\n11\r\n", 12, 100, False)
    output = files.read("n", offset=99)
    assert (output.text, output.next_offset) == ("99\r\n100\r\n", None)
    output = files.read("n", offset=100, limit=5)
    assert (output.text, output.next_offset, output.next_byte_offset) == ("100\r\n", None, None)
    output = files.read("n", offset=200)
    assert (output.text, output.notes) == ("", ["line 200 is past the end: there are 100 lines"])
    assert files.read("n", limit=1).text == "1\r\n"


def test_ranges_of_lines_in_utf_16(files: Files) -> None:
    text = "".join(f"{number}\u0a0a\n" for number in range(1, 50))
    files.put("n", text.encode("utf-16"))
    output = files.read("n", offset=7, limit=2)
    assert (output.text, output.next_offset) == ("7\u0a0a\n8\u0a0a\n", 9)
    again = files.read("n", byte_offset=output.next_byte_offset, byte_limit=6)
    assert again.text == "9\u0a0a\n"


def test_ranges_of_bytes_fall_on_characters(files: Files) -> None:
    files.put("f", "aß€\U0001f600z".encode())
    output = files.read("f", byte_offset=2, byte_limit=1)
    assert (output.text, output.next_byte_offset) == ("ß", 3)
    assert output.notes == ["begins at byte 1, where the character does"]
    output = files.read("f", byte_offset=3, byte_limit=5)
    assert (output.text, output.next_byte_offset) == ("€", 6)
    output = files.read("f", byte_offset=6, byte_limit=2)
    assert (output.text, output.next_byte_offset) == ("\U0001f600", 10)
    assert files.read("f", byte_offset=10).text == "z"
    assert files.read("f", byte_offset=11).text == ""
    files.fail("invalid_call", "read_file", path="f", offset=1, byte_offset=1)


def test_pages_put_together_are_the_file(files: Files) -> None:
    data = "".join(f"{number} {'ü' * (number % 300)}\n" for number in range(12_000)).encode()
    assert len(data) > 2 * MAX_PAGE_BYTES
    files.put("big", data)
    text, offset, pages = "", 1, 0
    while offset:
        output = files.read("big", offset=offset)
        text += output.text
        pages += 1
        assert output.sha256 == hashlib.sha256(data).hexdigest()
        assert (output.total_lines, output.truncated) == (12_000, output.next_offset is not None)
        offset = output.next_offset
    assert text.encode() == data
    assert pages == -(-len(data) // MAX_PAGE_BYTES)


def test_a_long_line_is_paged_by_bytes(files: Files) -> None:
    data = ("é" * 1_500_000).encode()
    files.put("one", data)
    output = files.read("one")
    assert output.notes == ["line 1 is cut after 1048576 bytes; go on with byte_offset=1048576"]
    assert (output.truncated, output.next_offset, output.bytes) == (True, None, 3_000_000)
    text = output.text
    while output.next_byte_offset:
        output = files.read("one", byte_offset=output.next_byte_offset)
        text += output.text
    assert text.encode() == data


def test_huge_files_answer_without_being_read(files: Files) -> None:
    block = b"0123456789abcde\n" * 65536
    with open(files.root / "huge.txt", "wb") as file:
        for _ in range(96):
            file.write(block)
        file.truncate(3 * 1024**3)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    output = files.read("huge.txt")
    assert (output.truncated, output.next_offset, output.sha256, output.total_lines) == (True, 65537, None, None)
    output = files.read("huge.txt", offset=6_000_000, limit=2)
    assert (output.text, output.next_offset) == ("0123456789abcde\n" * 2, 6_000_002)
    with open(files.root / "sparse", "wb") as file:
        file.truncate(3 * 1024**3)
    assert "3221225472 bytes" in str(files.fail("not_text", "read_file", path="sparse"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024


def test_what_is_no_file_is_refused_at_once_by_kind(files: Files) -> None:
    os.mkfifo(files.root / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.getcwd()
        os.chdir(files.root)
        try:
            listening.bind("sock")
        finally:
            os.chdir(here)
        began = time.monotonic()
        for path, word in (("fifo", "FIFO"), ("sock", "socket"), (".", "directory")):
            assert word in str(files.fail("wrong_kind", "read_file", path=path))
            files.fail("wrong_kind", "write_file", path=path, content="x")
            files.fail("wrong_kind", "edit_file", path=path, old_text="x", new_text="y")
        assert time.monotonic() - began < 5
    assert str(files.fail("not_found", "read_file", path="nope")) == "nope: no such file or directory"
    files.put("file", b"x")
    assert "not a directory" in str(files.fail("wrong_kind", "read_file", path="file/"))
    assert "not a directory" in str(files.fail("wrong_kind", "read_file", path="file/x"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_devices_are_refused(files: Files) -> None:
    os.mknod(files.root / "zero", 0o600 | 0o020000, os.makedev(1, 5))
    assert "character device" in str(files.fail("wrong_kind", "read_file", path="zero"))


def test_names_alike_are_hinted_at(files: Files) -> None:
    files.put("Shot 9.22\u202fPM.txt", b"nnbsp")
    files.put("re\u0301sume\u0301.txt", b"nfd")
    assert files.read("Shot 9.22\u202fPM.txt").text == "nnbsp"
    assert "Shot 9.22\\u202fPM.txt" in str(files.fail("not_found", "read_file", path="Shot 9.22 PM.txt").hint)
    assert "re\u0301sume\u0301.txt" in str(files.fail("not_found", "read_file", path="r\u00e9sum\u00e9.txt").hint)
    files.put("r\u00e9sum\u00e9.txt", b"nfc")
    assert (files.read("r\u00e9sum\u00e9.txt").text, files.read("re\u0301sume\u0301.txt").text) == ("nfc", "nfd")
    assert files.fail("not_found", "read_file", path="other.txt").hint is None


def test_names_that_are_not_utf_8_travel_both_ways(files: Files) -> None:
    files.put(b"bad\xff.txt", b"bytes")
    files.put(b"lit\\xff.txt", b"literal")
    files.put("new\nline\u2028.txt", b"lines")
    names = files.list().entries
    assert names == ["bad\\xff.txt", "lit\\x5cxff.txt", "new\nline\u2028.txt"]
    assert [files.read(name).text for name in names] == ["bytes", "literal", "lines"]
    files.write("bad\\xff.txt", "new")
    assert (Path(os.fsdecode(os.fsencode(files.root) + b"/bad\xff.txt"))).read_bytes() == b"new"


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 256, "y/" * 257 + "z", "z/" * 2100])
def test_paths_that_name_nothing(files: Files, path: str) -> None:
    for tool, more in (("read_file", {}), ("list_directory", {}), ("write_file", {"content": "x"})):
        files.fail("invalid_call", tool, path=path, **more)
    assert files.tree() == {}


def test_unreadable_is_permission(files: Files) -> None:
    files.put("f", b"x")
    (files.root / "f").chmod(0)
    give_to_nobody(files.root)
    with as_nobody():
        assert str(files.fail("permission", "read_file", path="f")) == "f: permission denied"


def test_reads_do_not_block_each_other(files: Files) -> None:
    files.put("small", b"x\n")
    files.put("large", b"0123456789abcde\n" * 400_000)

    async def main() -> tuple[int, int]:
        large = asyncio.create_task(files.run("read_file", path="large", offset=399_999))
        count = 0
        while not large.done():
            await files.run("read_file", path="small")
            await asyncio.sleep(0)
            count += 1
        return count, len((await large).text)

    count, length = asyncio.run(main())
    assert length == 32
    assert count > 1

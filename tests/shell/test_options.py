"""Option parsing, and what the second reading adds."""

from __future__ import annotations

from worker.shell.limits import Meter
from worker.shell.options import Parsed, parse
from worker.shell.reader import Reader
from worker.shell.second import unseen


def test_clusters_values_and_abbreviations() -> None:
    assert parse(
        ["-rf", "--recur", "-n5", "-n", "6", "--out=x", "--out", "y", "z"], "n", ("output",), ("recursive",)
    ) == (
        Parsed(
            [("r", ""), ("f", ""), ("recursive", ""), ("n", "5"), ("n", "6"), ("output", "x"), ("output", "y")], ["z"]
        )
    )


def test_options_after_operands_unless_told_otherwise() -> None:
    assert parse(["a", "-r", "--", "-x"]) == Parsed([("r", "")], ["a", "-x"])
    assert parse(["-r", "a", "-x"], permute=False) == Parsed([("r", "")], ["a", "-x"])


def starts(text: str) -> set[int]:
    reader = Reader(text, Meter())
    reader.program()
    return reader.starts


def test_the_second_reading_finds_what_the_first_did_not_begin_at() -> None:
    text = "é; sudo id && ls"
    assert unseen(text, starts(text)) == []
    assert unseen(text, starts(text) - {3}) == ["sudo id"]

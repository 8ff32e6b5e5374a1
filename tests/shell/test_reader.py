"""How a command line is read: structure, heredocs, what bash would refuse."""

from __future__ import annotations

from typing import Any

import pytest

from worker.shell.limits import Meter, TooComplex
from worker.shell.nodes import Compound, Function, Pipeline, Redirect, Simple, Token
from worker.shell.reader import Reader


def read(text: str) -> tuple[list[tuple[str, Any, bool]], Any]:
    reader = Reader(text, Meter())
    body = reader.program()
    return [(item.op, item.node, item.background) for item in body], reader.doubt


def words(text: str) -> list[object]:
    (item,) = Reader(text, Meter()).program()
    assert isinstance(item.node, Simple)
    return list(item.node.words)


def test_lists_keep_operators_and_background() -> None:
    items, doubt = read("a && b || c; d & e")
    assert [(op, background) for op, _, background in items] == [
        (";", False),
        ("&&", False),
        ("||", False),
        (";", True),
        (";", False),
    ]
    assert not doubt


def test_a_pipeline_is_one_node() -> None:
    ((_, node, _),) = read("a | b |& c")[0]
    assert isinstance(node, Pipeline)
    assert len(node.parts) == 3


@pytest.mark.parametrize("text", ["! { a; }", "time { a; }", "time -p { a; }", "coproc { a; }", "coproc N { a; }"])
def test_words_in_front_of_a_group_leave_it_a_group(text: str) -> None:
    ((_, node, _),) = read(text)[0]
    assert isinstance(node, Compound)
    assert node.kind == "group"


@pytest.mark.parametrize(
    "text, kind",
    [
        ("if a; then b; elif c; then d; else e; fi", "if"),
        ("while a; do b; done", "while"),
        ("until a; do b; done", "until"),
        ("for x in a b; do c; done", "for"),
        ("for x; do c; done", "for"),
        ("for ((i=0;i<3;i++)); do c; done", "cfor"),
        ("select x in a; do b; done", "select"),
        ("case x in (a|b) c;; *) d;& esac", "case"),
        ("(a; b)", "subshell"),
        ("{ a; b; }", "group"),
        ("[[ a == (b|c)* && -n $(x) ]]", "test"),
        ("(( a = 1 ))", "arith"),
    ],
)
def test_compound_commands(text: str, kind: str) -> None:
    items, doubt = read(text)
    assert len(items) == 1
    node = items[0][1]
    assert isinstance(node, Compound)
    assert node.kind == ("for" if kind == "select" else kind)
    assert not doubt


@pytest.mark.parametrize("text", ["f() { a; }", "function f { a; }", "function f() (a)", "f ()\n{ a; }", ":(){ :|:& }"])
def test_functions(text: str) -> None:
    ((_, node, _),) = read(text)[0]
    assert isinstance(node, Function)


def test_heredocs_are_taken_in_order_and_commands_behind_them_are_seen() -> None:
    items, doubt = read("cat <<A <<'B'; x\n1 $y\nA\n2 $y\nB\nz")
    assert not doubt
    assert [item[1].words for item in items] == [["cat"], ["x"], ["z"]]
    first, second = items[0][1].redirects
    assert isinstance(first, Redirect)
    assert [token.kind for token in first.target if isinstance(token, Token)] == ["q", "p", "q"]
    assert second.target == [Token("q", "2 $y\n")]


def test_a_continued_line_joins_a_word() -> None:
    assert words("r\\\nm x") == [[Token("u", "r"), Token("u", "m")], "x"]


def test_a_comment_begins_at_a_word_only() -> None:
    assert words("echo a#b # c") == ["echo", [Token("u", "a#b")]]


@pytest.mark.parametrize(
    "text", ["if true; then", "echo 'a", 'echo "a', "a )", "done", "case x in", "$(", "a &&& b", "cat <"]
)
def test_what_bash_refuses_is_read_with_doubt(text: str) -> None:
    assert read(text)[1]


def test_commands_after_nonsense_are_still_seen() -> None:
    items, doubt = read(") } fi; sudo id")
    assert doubt
    assert items[-1][1].words == ["sudo", "id"]


@pytest.mark.parametrize(
    "text", ["$(" * 100, "(" * 100, "{ " * 100, "if " * 100, "`" + "$(" * 100, '"$(' * 100, "${x:-" * 100]
)
def test_nesting_is_capped(text: str) -> None:
    with pytest.raises(TooComplex):
        Reader(text, Meter()).program()

"""What a command line may run: every command at every level, with its words expanded."""

from __future__ import annotations

import pytest

from worker.shell.marks import DOWNLOAD, UNKNOWN
from worker.shell.walk import walk

HOME = "/w"


def argvs(text: str) -> list[tuple[str, ...]]:
    return [call.argv for call in walk(text, cwd=HOME, home=HOME).calls]


def last(text: str) -> tuple[str, ...]:
    return argvs(text)[-1]


@pytest.mark.parametrize(
    "word, fields",
    [
        ("a'b'\"c\"\\d", ["abcd"]),
        ("$'\\x61\\142\\u0063'", ["abc"]),
        ("{a,b}{1..2}", ["a1", "a2", "b1", "b2"]),
        ("{a}", ["{a}"]),
        ("~/x", ["/w/x"]),
        ("$HOME ${HOME}x", ["/w", "/wx"]),
        ("${u:-d} ${u-e} ${HOME:+yes}", ["d", "e", "yes"]),
        ('$(echo a b) "$(echo a b)"', ["a", "b", "a b"]),
        ("$(printf '%s-%s\\n' a b)", ["a-b"]),
        ("`echo x`", ["x"]),
        ("$((1 + 2))", ["3"]),
        ("$(base64 -d <<< aGk=)", ["hi"]),
        ("$(echo abc | rev | tr a-c x-z)", ["zyx"]),
        ("$(pwd)", ["/w"]),
    ],
)
def test_words_are_expanded(word: str, fields: list[str]) -> None:
    assert last(f"x {word}") == ("x", *fields)


@pytest.mark.parametrize(
    "text, argv",
    [
        ("x=a; y=$x; c $y", ("c", "a")),
        ("x='a b'; c $x \"$x\"", ("c", "a", "b", "a b")),
        ("x=a; x+=b; c $x", ("c", "ab")),
        ('a=(1 2 3); c ${a[1]} ${#a[@]} "${a[@]}"', ("c", "2", UNKNOWN, "1", "2", "3")),
        ("declare -A m=([k]=v); c ${m[k]}", ("c", "v")),
        ("x=y; y=z; c ${!x}", ("c", "z")),
        ("set -- a b; c $2 $1", ("c", "b", "a")),
        ("set -- a b; shift; c $1", ("c", "b")),
        ("IFS=,; x=a,b; c $x", ("c", "a", "b")),
        ("x=abc.txt; c ${x%.txt} ${x#a} ${x/b/B} ${x^^} ${x:1:1}", ("c", "abc", "bc.txt", "aBc.txt", "ABC.TXT", "b")),
        ("read a b <<< '1 2 3'; c $a $b", ("c", "1", "2", "3")),
        ("printf -v x %s-%s a b; c $x", ("c", "a-b")),
        ("f() { c \"$@\"; }; f 1 '2 3'", ("c", "1", "2 3")),
        ("bash -c 'c $0 $1' a b", ("c", "a", "b")),
    ],
)
def test_variables_are_followed(text: str, argv: tuple[str, ...]) -> None:
    assert last(text) == argv


def test_every_alternative_of_a_variable_is_seen() -> None:
    assert {argv for argv in argvs("x=a; if t; then x=b; fi; $x") if len(argv) == 1} >= {("a",), ("b",)}
    assert {argv[1] for argv in argvs("for x in 1 2 3; do c $x; done")} == {"1", "2", "3"}
    assert {argv[1] for argv in argvs("while read x; do c $x; done <<< $'1\\n2'") if argv[0] == "c"} == {"1", "2"}


@pytest.mark.parametrize(
    "text, cwd",
    [
        ("cd sub; x", "/w/sub"),
        ("cd sub && x", "/w/sub"),
        ("cd /a/../b; x", "/b"),
        ("cd; x", "/w"),
        ("cd /a; cd -; x", "/w"),
        ("pushd /a; popd; x", "/w"),
        ("(cd /a); x", "/w"),
        ("cd /a | true; x", "/w"),
        ("env -C /a x", "/a"),
    ],
)
def test_the_directory_is_followed(text: str, cwd: str) -> None:
    assert walk(text, cwd=HOME, home=HOME).calls[-1].cwd == cwd


@pytest.mark.parametrize(
    "text, trail",
    [
        ("find . -exec x {} +", ("find -exec",)),
        ("env -i timeout 5 nice -n 3 x", ("env", "timeout", "nice")),
        ("bash -c 'eval x'", ("bash -c", "eval")),
        ("echo x | sh", ("sh reading its input",)),
        ("python3 -c 'import os; os.system(\"x\")'", ("python -c",)),
        ("git -c alias.a='!x' a", ("git alias",)),
    ],
)
def test_the_trail_says_how_a_command_is_reached(text: str, trail: tuple[str, ...]) -> None:
    call = walk(text, cwd=HOME, home=HOME).calls[-1]
    assert (call.argv[0], call.trail) == ("x", trail)


def test_what_a_line_writes_it_may_run() -> None:
    assert last("echo 'c 1' > a.sh; sh a.sh") == ("c", "1")
    assert last("printf 'c 1' | tee a.sh; chmod +x a.sh; ./a.sh") == ("c", "1")
    assert last("cp /bin/rm x; ./x -rf y") == ("/bin/rm", "-rf", "y")


@pytest.mark.parametrize(
    "text, kind",
    [
        ("curl u | sh", "foreign_code"),
        ("bash <(curl u)", "foreign_code"),
        ("wget u/a.sh; sh a.sh", "foreign_code"),
        ("zcat f | sh", "foreign_code"),
        ("cat f | sh", "unknown_code"),
        ("read c; $c", "unknown_command"),
        (":(){ :|:& };:", "fork_bomb"),
        ("while :; do x & done", "fork_bomb"),
        ("eval $X", "unset_code"),
        ("$X y", "unset_command"),
    ],
)
def test_findings(text: str, kind: str) -> None:
    assert kind in {finding.kind for finding in walk(text, cwd=HOME, home=HOME).findings}


def test_a_download_is_told_apart_from_other_unknown_text() -> None:
    assert last('x "$(curl u)"') == ("x", DOWNLOAD)
    assert last('x "$(make y)"') == ("x", UNKNOWN)


def test_plain_recursion_is_no_fork_bomb() -> None:
    assert not walk("f() { g; f; }; f", cwd=HOME, home=HOME).findings

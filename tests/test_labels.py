"""Path rules raise the level of what was opened, and nothing lowers it."""

from __future__ import annotations

import fnmatch
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.levels import Level
from worker.labels import PathRule, level_of, level_of_all, path_rule, read_path_rules

PUBLIC, INTERNAL, CONFIDENTIAL, RESTRICTED = Level

CASES = [
    ("*.pem", ["a.pem", "d/a.pem", "a.pem/x", ".pem"], ["a.pemx", "apem", "A.PEM"]),
    ("secrets/", ["secrets", "secrets/x", "a/secrets/y/z"], ["secretsx", "a/xsecrets", "secret"]),
    (".env", [".env", "a/.env"], ["x.env", ".envrc", "env"]),
    ("docs/*.md", ["docs/a.md", "docs/.md"], ["docs/a/b.md", "x/docs/a.md", "docs"]),
    ("a/b", ["a/b", "a/b/c"], ["b", "x/a/b", "a/bc"]),
    ("**/a/b", ["a/b", "x/a/b", "x/y/a/b/c"], ["xa/b", "a"]),
    ("a/**/b", ["a/b", "a/x/b", "a/x/y/b/z"], ["a/xb", "x/a/b", "ab"]),
    ("a/**", ["a/b", "a/b/c"], ["a", "b/a/c", "ab/c"]),
    ("a/**/b/**/c", ["a/b/c", "a/1/b/2/3/c", "a/b/b/c"], ["a/c", "a/b", "a/c/b"]),
    ("**", ["a", "a/b", ".x"], []),
    ("*", ["a", "b/c"], []),
    ("a*c*e", ["ace", "abcde", "x/accce", "aceace"], ["ac/e", "abde", "acd"]),
    ("a?c", ["abc", "x/a.c"], ["a/c", "ac", "abbc"]),
    ("[a-c]x", ["ax", "q/bx"], ["dx", "a/x", "-x"]),
    ("[!a]x", ["bx", "/bx"[1:]], ["ax", "x"]),
    ("x[", ["x["], ["x"]),
    ("[]]x", ["]x"], ["x"]),
    ("a.b+(c)", ["a.b+(c)"], ["axb+(c)"]),
    ("a[^b]c", ["a^c", "abc"], ["axc"]),
    ("/srv/*/k", ["/srv/a/k", "/srv/a/k/z"], ["srv/a/k", "/srv/k", "/srv/a/b/k"]),
    ("/srv/**", ["/srv/a", "/srv/a/b"], ["/srv", "srv/a", "/srvx/a"]),
    ("é*", ["été", "x/é"], ["ete"]),
    ("a\nb", ["a\nb"], ["a", "b"]),
]


@pytest.mark.parametrize("glob, matching, other", CASES, ids=[case[0] for case in CASES])
def test_what_a_glob_matches(glob: str, matching: list[str], other: list[str]) -> None:
    rules = [path_rule(glob, CONFIDENTIAL)]
    assert {path: level_of([path], PUBLIC, rules) for path in matching} == dict.fromkeys(matching, CONFIDENTIAL)
    assert {path: level_of([path], PUBLIC, rules) for path in other} == dict.fromkeys(other, PUBLIC)


@pytest.mark.parametrize("glob", ["", "/", "a//b", "./a", "a/../b", "..", "."])
def test_refuses_a_glob_that_could_never_match(glob: str) -> None:
    with pytest.raises(ValueError, match="glob"):
        path_rule(glob, CONFIDENTIAL)


@pytest.mark.parametrize("word", ["", " ", "secret", "public", "PUBLIC ", "Confidential", "NONE", "0"])
def test_a_word_that_is_no_level_is_restricted(word: str) -> None:
    assert path_rule("a", word).level is RESTRICTED


def test_the_highest_of_workspace_rules_and_paths() -> None:
    rules = [path_rule("*.txt", INTERNAL), path_rule("private/", CONFIDENTIAL), path_rule("private/keys", "RESTRICTED")]
    levels = {
        (): INTERNAL,
        ("a.bin",): INTERNAL,
        ("a.bin", "private/a.txt"): CONFIDENTIAL,
        ("private/keys/a.txt", "a.bin"): RESTRICTED,
    }
    assert {paths: level_of(paths, INTERNAL, rules) for paths in levels} == levels
    assert level_of(["private/a"], RESTRICTED, rules) is RESTRICTED


def test_a_rule_never_lowers() -> None:
    lowering = [path_rule("private/public", PUBLIC), path_rule("private", RESTRICTED)]
    assert level_of(["private/public/a"], INTERNAL, lowering) is RESTRICTED
    assert level_of(["x/private/public"], INTERNAL, lowering) is RESTRICTED
    assert level_of(["a"], INTERNAL, [path_rule("*", PUBLIC)]) is INTERNAL


@pytest.mark.parametrize("path", ["../a", "a/../b", "a/./b", "a//b", "./a", "a\0b", "/", "//a", "..", "a/.."])
def test_a_path_that_is_not_canonical_is_restricted(path: str) -> None:
    assert level_of([path], PUBLIC, [path_rule("x", INTERNAL)]) is RESTRICTED


def test_the_root_of_the_workspace_has_the_workspaces_level() -> None:
    rules = [path_rule("**", CONFIDENTIAL)]
    assert level_of(["."], INTERNAL, rules) is INTERNAL
    assert level_of([""], INTERNAL, rules) is INTERNAL


def test_what_may_read_everything_has_the_highest_level_of_all() -> None:
    assert level_of_all(INTERNAL, []) is INTERNAL
    assert level_of_all(INTERNAL, [path_rule("a", PUBLIC), path_rule("b", CONFIDENTIAL)]) is CONFIDENTIAL
    assert level_of_all(RESTRICTED, [path_rule("a", PUBLIC)]) is RESTRICTED


def test_reads_configured_rules() -> None:
    rules = read_path_rules("*.pem=RESTRICTED, docs/ = INTERNAL,\n\na=b=CONFIDENTIAL\nlast=typo")
    assert [(rule.glob, rule.level) for rule in rules] == [
        ("*.pem", RESTRICTED),
        ("docs/", INTERNAL),
        ("a=b", CONFIDENTIAL),
        ("last", RESTRICTED),
    ]
    assert read_path_rules(" \n") == ()


@pytest.mark.parametrize("text", ["*.pem", "=PUBLIC", "a=PUBLIC,b"])
def test_refuses_a_rule_without_a_glob_or_a_level(text: str) -> None:
    with pytest.raises(ValueError, match="glob"):
        read_path_rules(text)


_NAMES = st.text(alphabet="ab.", min_size=1, max_size=4).filter(lambda name: name not in (".", ".."))
_PATHS = st.lists(_NAMES, min_size=1, max_size=5).map("/".join)
_GLOB_NAMES = st.text(alphabet="ab.*?", min_size=1, max_size=5).filter(lambda name: name not in (".", "..", "**"))
_GLOBS = st.lists(st.one_of(_GLOB_NAMES, st.just("**")), min_size=1, max_size=4).map("/".join)


def _matches(glob: list[str], path: list[str]) -> bool:
    """The rule's words once more, by trying every possibility."""
    if not glob:
        return True
    if glob[0] == "**":
        if len(glob) == 1:
            return len(path) > 0
        return any(_matches(glob[1:], path[start:]) for start in range(len(path) + 1))
    pattern = re.compile(fnmatch.translate(glob[0].replace("[", "[[]")))
    return bool(path) and pattern.match(path[0]) is not None and _matches(glob[1:], path[1:])


@given(_GLOBS, _PATHS)
@settings(max_examples=400, deadline=None)
def test_agrees_with_trying_every_possibility(glob: str, path: str) -> None:
    names = glob.split("/")
    if len(names) == 1:
        names.insert(0, "**")
    assert (level_of([path], PUBLIC, [path_rule(glob, INTERNAL)]) is INTERNAL) == _matches(names, path.split("/"))


@given(st.text(), st.sampled_from(list(Level)), st.lists(st.tuples(_GLOBS, st.sampled_from(list(Level))), max_size=4))
@settings(max_examples=200, deadline=None)
def test_never_raises_and_never_falls_below_the_workspace(
    path: str, level: Level, configured: list[tuple[str, Level]]
) -> None:
    rules = [path_rule(glob, each) for glob, each in configured]
    assert level <= level_of([path], level, rules) <= RESTRICTED
    assert level_of([path, "a"], level, rules) >= level_of([path], level, rules)


def test_many_stars_against_a_long_name_are_done_soon() -> None:
    rules: list[PathRule] = [path_rule("*a" * 60 + "b", INTERNAL), path_rule("**/a/" * 30 + "b", INTERNAL)]
    assert level_of(["a" * 255, "a/" * 2000 + "c"], PUBLIC, rules) is PUBLIC
    assert level_of(["a" * 254 + "b"], PUBLIC, rules) is INTERNAL

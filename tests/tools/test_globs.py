"""One meaning of globs, as documented in docs/files.md."""

from __future__ import annotations

import pytest

from worker.tools.globs import InvalidGlob, compile_glob, compile_literal

PATHS = [
    "top.py",
    "src/app/main.py",
    "src/app/.hidden.py",
    ".github/workflows/ci.yml",
    "src/x.ts",
    "src/y.tsx",
    "a/b/c/d.txt",
    "a/d.txt",
    "a b/c d.txt",
    "we[ird]/x{y}.txt",
    "back\\slash",
    "new\nline.txt",
    "UPPER.PY",
    "1.txt",
    "é.txt",
]


@pytest.mark.parametrize(
    "pattern,expected",
    [
        ("*.py", ["top.py", "src/app/main.py", "src/app/.hidden.py"]),
        ("**/*.py", ["top.py", "src/app/main.py", "src/app/.hidden.py"]),
        ("./*.py", ["top.py"]),
        ("src/*.py", []),
        ("src/**/*.py", ["src/app/main.py", "src/app/.hidden.py"]),
        ("src/**", ["src/app/main.py", "src/app/.hidden.py", "src/x.ts", "src/y.tsx"]),
        ("**/app/*", ["src/app/main.py", "src/app/.hidden.py"]),
        ("a/**/d.txt", ["a/b/c/d.txt", "a/d.txt"]),
        ("a/*/d.txt", []),
        ("*.{ts,tsx}", ["src/x.ts", "src/y.tsx"]),
        ("{src/x,src/y}.ts*", ["src/x.ts", "src/y.tsx"]),
        ("{top,src/{app/main,x}}.{py,ts}", ["top.py", "src/app/main.py", "src/x.ts"]),
        (".github/**/*.yml", [".github/workflows/ci.yml"]),
        ("**/*.yml", [".github/workflows/ci.yml"]),
        ("?.ts", ["src/x.ts"]),
        ("[xz].ts", ["src/x.ts"]),
        ("[!x].ts*", ["src/y.tsx"]),
        ("[^x].ts*", ["src/y.tsx"]),
        ("[w-y].ts*", ["src/x.ts", "src/y.tsx"]),
        ("[[:digit:]].txt", ["1.txt"]),
        ("[[:alpha:]].txt", ["a/b/c/d.txt", "a/d.txt", "é.txt"]),
        ("[]d].txt", ["a/b/c/d.txt", "a/d.txt"]),
        ("?.txt", ["a/b/c/d.txt", "a/d.txt", "1.txt", "é.txt"]),
        ("c d.txt", ["a b/c d.txt"]),
        ("we\\[ird\\]/x\\{y\\}.txt", ["we[ird]/x{y}.txt"]),
        ("x{y}.txt", ["we[ird]/x{y}.txt"]),
        ("back\\\\slash", ["back\\slash"]),
        ("new*.txt", ["new\nline.txt"]),
        ("main", []),
        ("a**.txt", []),
        ("s**c/x.ts", ["src/x.ts"]),
        ("top.py", ["top.py"]),
        ("", None),
        ("[a", None),
        ("{a,b", None),
        ("{1..3}.txt", None),
        ("!(a).txt", None),
        ("@(a|b).txt", None),
        ("[[:nope:]]", None),
        ("[z-a]", None),
        ("src/", None),
        ("a\\", None),
        ("{a,b}" * 12, None),
    ],
)
def test_globs(pattern: str, expected: list[str] | None) -> None:
    if expected is None:
        with pytest.raises(InvalidGlob):
            compile_glob(pattern)
        return
    compiled = compile_glob(pattern)
    assert [path for path in PATHS if compiled.fullmatch(path)] == expected


def test_options() -> None:
    assert compile_glob("*.py", case_sensitive=False).fullmatch("UPPER.PY")
    assert not compile_glob("*.py", anchored=True).fullmatch("src/app/main.py")
    assert compile_glob("we[ird]/*", brackets=False).fullmatch("we[ird]/x{y}.txt")
    assert compile_literal("x{y}.txt").fullmatch("we[ird]/x{y}.txt")
    assert not compile_literal("*.py").fullmatch("top.py")


def test_many_stars_are_no_trap() -> None:
    assert not compile_glob("*a" * 30 + "b").fullmatch("a" * 250)
    assert not compile_glob("**/a/" * 30 + "b").fullmatch("a/" * 250 + "c")
    assert not compile_glob("[a]*[ab]*" * 15 + "b").fullmatch("a" * 250 + "c")
    assert compile_glob("*a*b*ab").fullmatch("xaybzabab")
    assert compile_glob("**/a/**/b/c").fullmatch("x/a/b/b/c")
    assert compile_glob("**/a/*/**/b").fullmatch("a/b/b")
    assert not compile_glob("a*a").fullmatch("a")

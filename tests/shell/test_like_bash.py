"""Random words, expanded here and by bash itself."""

from __future__ import annotations

import random
import shutil
import subprocess

import pytest

from worker.shell import marks
from worker.shell.walk import walk

BASH = shutil.which("bash")
SETUP = "x=hello n=x arr=(1 '2 3' 4); set -- p 'q r'"
PIECES = [
    "a",
    "b",
    "'c d'",
    '"e"',
    "$x",
    "${x}",
    "${y:-dflt}",
    "$'\\x41'",
    "{1,2}",
    "{a,b}c",
    "\\$",
    "$(echo\tq)",
    "`echo\tz`",
    "$((1+2))",
    "${x#h}",
    "${x%o}",
    "${x/l/L}",
    "${x^^}",
    "${#x}",
    "~/",
    "${arr[1]}",
    "''",
    '""',
    "a=b",
    "x{",
    "}y",
    "{a}",
    "{1..3}",
    "${x:1:2}",
    "${!n}",
    "$1",
    "$@",
    '"$@"',
    '"${arr[@]}"',
    "${x:+s}",
    "#h",
    "a#b",
    "{a,{b,c}}",
    '"{a,b}"',
    "[a",
    "=",
    "!",
    "%",
    "@",
    ",",
    "{,}",
    "pre{x,y}post",
]


def commands(count: int) -> list[str]:
    choose = random.Random(7)
    return [
        "printf '<%s>' "
        + " ".join("".join(choose.choices(PIECES, k=choose.randint(1, 3))) for _ in range(choose.randint(1, 3)))
        for _ in range(count)
    ]


@pytest.mark.skipif(BASH is None, reason="needs bash")
def test_words_become_the_fields_that_bash_makes_of_them() -> None:
    lines = commands(300)
    script = SETUP + "".join(f"\n({line}\n) 2>/dev/null; echo" for line in lines)
    done = subprocess.run(
        [str(BASH), "--norc", "--noprofile", "-fc", script],
        cwd="/",
        env={"HOME": "/w", "PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    for line, printed in zip(lines, done.stdout.split("\n"), strict=False):
        call = next(call for call in walk(f"{SETUP}; {line}", cwd="/", home="/w").calls if call.argv[0] == "printf")
        fields = call.argv[2:]
        if not any(marks.has_value_mark(field) for field in fields):
            assert "".join(f"<{marks.literal_globs(field)}>" for field in fields or ("",)) == printed, line

"""Random disguises of one command. bash says whether the command is reached; then the denylist must have seen it."""

from __future__ import annotations

import pathlib
import random
import shlex
import shutil
import subprocess
from collections.abc import Callable

import pytest

from worker.decisions import Verdict
from worker.policies.command_denylist import judge_command

ROOT = "/srv/toolreef/ws/q/w1"
BASH = shutil.which("bash")
quote = shlex.quote

WORDS: tuple[Callable[[str, int], str], ...] = (
    lambda word, at: f"{word[:at]}''{word[at:]}",
    lambda word, at: f"{word[:at]}\\{word[at:]}" if at < len(word) else word,
    lambda word, at: f"{word[:at]}\\\n{word[at:]}",
    lambda word, at: f"{word[:at]}${{unset}}{word[at:]}",
    lambda word, at: f"{word[:at]}$(true){word[at:]}",
    lambda word, at: "$'" + "".join(f"\\x{ord(char):02x}" for char in word) + "'",
    lambda word, at: "$'" + "".join(f"\\{ord(char):03o}" for char in word) + "'",
    lambda word, at: f"$(printf %s {' '.join(word)})",
    lambda word, at: f"$(rev <<< {word[::-1]})",
    lambda word, at: f"${{unset:-{word}}}",
    lambda word, at: f"`echo {word}`",
    lambda word, at: f'"{word}"',
)
WRAPS: tuple[Callable[[str], str], ...] = (
    lambda line: f"bash -c {quote(line)}",
    lambda line: f"eval {quote(line)}",
    lambda line: f"trap {quote(line)} EXIT",
    lambda line: f"bash <<< {quote(line)}",
    lambda line: f"{{ bash <<'END'\n{line}\nEND\n}}",
    lambda line: f"echo {quote(line)} | bash",
    lambda line: f"echo {quote(line)} | base64 | base64 -d | bash",
    lambda line: f"echo {quote(line)} > t.sh; bash t.sh",
    lambda line: f"echo {quote(line)} | tee t.sh > /dev/null; . ./t.sh",
    lambda line: f'V={quote(line)}; eval "$V"',
    lambda line: f'V=({quote(line)}); bash -c "${{V[0]}}"',
    lambda line: f'set -- {quote(line)}; eval "$1"',
    lambda line: f"f() {{ {line}; }}; f",
    lambda line: f"false || {line}",
    lambda line: f"{{ ({line}); }}",
    lambda line: f"! {{ {line}; }}",
    lambda line: f'echo "$({line})"',
    lambda line: f"echo ${{unset:-$({line})}}",
    lambda line: f"[[ -n $({line}) ]]",
    lambda line: f"cat <({line})",
    lambda line: f"case x in x) {line};; esac",
    lambda line: f"while true; do {line}; break; done",
    lambda line: f"find . -maxdepth 0 -exec bash -c {quote(line)} \\;",
    lambda line: f"env A=1 nice -n 1 timeout 5 bash -c {quote(line)}",
    lambda line: f"xargs -I{{}} bash -c {quote(line)} <<< a",
)


def disguised(seed: int) -> str:
    choose = random.Random(seed)
    line = choose.choice(WORDS)("sudo", choose.randrange(1, 4)) + " id"
    for _ in range(choose.randrange(4)):
        line = choose.choice(WRAPS)(line)
    return line


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize("seed", range(80))
def test_what_bash_reaches_is_denied(seed: int, tmp_path: pathlib.Path) -> None:
    program, reached = tmp_path / "bin" / "sudo", tmp_path / "reached"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n: > {reached}\n")
    program.chmod(0o755)
    line = disguised(seed)
    subprocess.run(
        [str(BASH), "--norc", "--noprofile", "-c", line],
        cwd=tmp_path,
        env={"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert reached.exists(), line
    assert judge_command(line, workspace_roots=(ROOT,), cwd=ROOT, home=ROOT).verdict is Verdict.DENY, line


@pytest.mark.parametrize("harmless", ["echo sudo id", "grep -n 'sudo id' f", "rm -rf build", "cat sudoers.md"])
def test_the_same_wraps_of_harmless_commands_pass(harmless: str) -> None:
    for wrap in WRAPS:
        decision = judge_command(wrap(harmless), workspace_roots=(ROOT,), cwd=ROOT, home=ROOT)
        assert decision.verdict is Verdict.ALLOW, (wrap(harmless), decision.reason)

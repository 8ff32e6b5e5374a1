"""How long the denylist takes: the cases of the tests, and commands of 64 KB. Prints milliseconds.

python -m bench.denylist
"""

from __future__ import annotations

import json
import pathlib
import statistics
import time

from worker.policies.command_denylist import judge_command

_CASES = pathlib.Path(__file__).parent.parent / "tests" / "policies" / "data"
_ROOT = "/srv/toolreef/workspaces/q/w"
_CAP = 64 * 1024


def _milliseconds(command: str) -> float:
    begin = time.process_time()
    judge_command(command, workspace_roots=(_ROOT,), cwd=_ROOT, home=_ROOT)
    return (time.process_time() - begin) * 1000


def _large() -> dict[str, str]:
    return {
        "one word": "echo " + "a" * (_CAP - 5),
        "heredoc of text": "cat > notes.md <<'EOF'\n"
        + 'Some `text` with $(marks), "quotes" and words.\n' * 1300
        + "EOF",
        "heredoc with expansions": "cat > notes.md <<EOF\n" + "value $x and text\n" * 3500 + "EOF",
        "script of 1500 lines": 'mkdir -p "$out/dir"; cp -r src/file.txt out/\n' * 1400,
        "true && true": "true && " * 8000 + "true",
        "nested $(": "echo " + "$(" * 20000,
        "nested parentheses": "(" * 60000,
        "nested ${x:-": "echo " + "${x:-" * 12000,
        "braces": "echo " + "{a,b}" * 12000,
        "brace range": "echo {1..999999}{1..999999}",
        "quotes": "echo " + "'a'" * 20000,
        "escapes": "echo " + "\\a" * 30000,
        "backquotes": "echo " + "`" * 60000,
        "heredocs": "cat <<A\n" * 7000,
        "backslashes and backquotes": "echo " + "\\`" * 30000,
        "python": "python3 -c '" + 'print("a", x) ; y = "b"\n' * 2400 + "'",
        "assignments": "x=$x$x;" * 9000,
        "loops": "for a in 1 2 3; do " * 3000,
        "arithmetic": "echo " + "$((" * 20000,
        "unclosed double quotes": 'echo "' * 10000,
    }


def main() -> None:
    """Measures and prints."""
    commands = [json.loads(line)["command"] for path in sorted(_CASES.glob("*.jsonl")) for line in path.open()]
    times = sorted(min(_milliseconds(command) for _ in range(3)) for command in commands)
    p95 = times[int(len(times) * 0.95)]
    print(f"{len(times)} lines: p50 {statistics.median(times):.3f} ms, p95 {p95:.3f} ms, max {times[-1]:.3f} ms")
    for name, command in _large().items():
        print(f"{name} ({len(command) // 1024} KB): {_milliseconds(command[:_CAP]):.1f} ms")


if __name__ == "__main__":
    main()

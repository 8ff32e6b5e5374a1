"""Shells and what else takes shell text: `sh -c`, scripts, standard input, `eval`, `trap`, `source`."""

from __future__ import annotations

import re

from worker.shell import inner
from worker.shell.inner import Inner
from worker.shell.options import parse
from worker.shell.state import Call

SHELLS = frozenset({
    "sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "rbash", "fish", "csh", "tcsh", "yash", "lksh", "pdksh",
    "hush", "osh", "posh", "ksh93", "bash5", "zsh5", "pwsh", "nu", "xonsh", "elvish",
})  # fmt: skip

_SHELL_LONG = ("rcfile", "init-file", "command")


def shell(name: str, call: Call) -> list[Inner]:
    """What a shell runs: the text of `-c`, a file, or its standard input."""
    options, operands, text, reads_stdin = _shell_options(call.argv[1:])
    found: list[Inner] = []
    for path in options:
        found += inner.file(path, "sh", f"{name} --rcfile")
    if text is not None:
        made = inner.script(text, f"{name} -c", tuple(operands[1:]))
        return found + [one._replace(zero=operands[0]) if operands else one for one in made]
    if operands and not reads_stdin:
        return found + inner.file(operands[0], "sh", name, operands[1:])
    if call.stdin is not None:
        found += inner.script(call.stdin, f"{name} reading its input", tuple(operands))
    return found


def _shell_options(arguments: tuple[str, ...]) -> tuple[list[str], list[str], str | None, bool]:
    files: list[str] = []
    command = reads_stdin = False
    at = 0
    while at < len(arguments):
        argument = arguments[at]
        if argument in ("--", "-"):
            at += 1
            break
        if argument.startswith("--"):
            name, equals, value = argument[2:].partition("=")
            if name in ("rcfile", "init-file") and not equals and at + 1 < len(arguments):
                at += 1
                files.append(arguments[at])
            elif name == "command":
                command = True
            elif equals:
                files.append(value)
        elif argument[:1] in "-+" and len(argument) > 1:
            command = command or ("c" in argument and argument[0] == "-")
            reads_stdin = reads_stdin or "s" in argument[1:]
            if argument[-1] in "oO":
                at += 1
        else:
            break
        at += 1
    operands = list(arguments[at:])
    text = operands.pop(0) if command and operands else None
    return files, operands, text, reads_stdin and not command


def evaluated(call: Call) -> list[Inner]:
    """`eval`: all its words, joined, as text."""
    words = call.argv[2:] if call.argv[1:2] == ("--",) else call.argv[1:]
    return inner.script(" ".join(words), "eval")


def trapped(call: Call) -> list[Inner]:
    """`trap`: its first word is text for later."""
    words = call.argv[1:]
    if words[:1] == ("--",):
        words = words[1:]
    if len(words) < 2 or words[0].startswith("-"):
        return []
    return inner.script(words[0], "trap")


def sourced(call: Call) -> list[Inner]:
    """`source` and `.`."""
    words = [word for word in call.argv[1:] if word != "--"]
    return inner.file(words[0], "sh", "source", words[1:]) if words else []


def callback(call: Call) -> list[Inner]:
    """`mapfile -C`, `complete -C`, `bind -x`, `PROMPT_COMMAND`-like: text in an option."""
    parsed = parse(call.argv[1:], "CFxduOsncW")
    found: list[Inner] = []
    for text in parsed.values("C"):
        found += inner.script(text, f"{call.argv[0]} -C")
    for text in parsed.values("x"):
        found += inner.script(text.partition(":")[2].strip().strip("'\""), f"{call.argv[0]} -x")
    return found


def joined(skip_options: str, long: tuple[str, ...] = ()) -> object:
    """Commands that hand all their operands to `sh -c`, as one text."""

    def take(call: Call) -> list[Inner]:
        parsed = parse(call.argv[1:], skip_options, long, permute=False)
        return inner.script(" ".join(parsed.operands), call.argv[0].rpartition("/")[2])

    return take


def each(skip_options: str, long: tuple[str, ...] = ()) -> object:
    """Commands that hand each operand to a shell of its own."""

    def take(call: Call) -> list[Inner]:
        parsed = parse(call.argv[1:], skip_options, long)
        found: list[Inner] = []
        for text in parsed.operands:
            found += inner.script(text, call.argv[0].rpartition("/")[2])
        return found

    return take


def ssh(call: Call) -> list[Inner]:
    """`ssh`: ProxyCommand and friends run here, the rest over there; both are looked at."""
    parsed = parse(call.argv[1:], "BbcDEeFIiJLlmOopQRSWw", permute=False)
    found: list[Inner] = []
    for value in parsed.values("o"):
        found += ssh_option(value)
    rest = parsed.operands[1:]
    while rest and rest[0].startswith("-"):
        again = parse(rest, "BbcDEeFIiJLlmOopQRSWw", permute=False)
        for value in again.values("o"):
            found += ssh_option(value)
        rest = again.operands if again.operands != rest else []
    return found + inner.script(" ".join(rest), "ssh")


def ssh_option(value: str) -> list[Inner]:
    """An `-o` of ssh that runs something."""
    found = re.match(r"\s*(ProxyCommand|LocalCommand|KnownHostsCommand|ProxyUseFdpass)[\s=]+(.*)", value, re.I | re.S)
    return inner.script(found.group(2), f"ssh {found.group(1)}") if found else []

"""Commands that run the command after their own options: one table, and the few that need more than a row."""

from __future__ import annotations

import re
import shlex

from worker.shell import inner, marks
from worker.shell.inner import Inner
from worker.shell.marks import UNKNOWN
from worker.shell.options import parse
from worker.shell.state import Call
from worker.shell.wrapper_table import HELP_OPTIONS, ROWS

_LOADER = re.compile(r"ld-linux[\w.-]*\.so[.\d]*|ld-musl[\w.-]*|ld\.so")


_PLACE = re.compile(r"\{[./#%0-9]*\}")


_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


def unwrapped(name: str, call: Call) -> list[Inner] | None:
    """What a wrapper runs, or None when the command is no wrapper."""
    if name in SPECIAL:
        return SPECIAL[name](call)
    row = ROWS.get("ld.so" if name.startswith("ld-") and _LOADER.fullmatch(name) else name)
    if row is None:
        return None
    arguments = call.argv[1:]
    if row.subcommand:
        head = parse(arguments, row.short, row.long, permute=False).operands
        if head[:1] != [row.subcommand] and not (name == "perf" and head[:1] in (["stat"], ["trace"])):
            return []
        arguments = tuple(head[1:])
        name = f"{name} {head[0]}"
    parsed = parse(arguments, row.short, row.long, HELP_OPTIONS, permute=False)
    if parsed.has(*row.none, *HELP_OPTIONS):
        return []
    found: list[Inner] = []
    for text in parsed.values(*row.scripts) if row.scripts else []:
        found += inner.script(text, name)
    operands = parsed.operands[row.skip :]
    while operands and _ASSIGNMENT.match(operands[0]) and name in ("firejail", "doas", "systemd-run"):
        operands = operands[1:]
    return found + inner.argv(operands, name)


def _env(call: Call) -> list[Inner]:
    arguments = list(call.argv[1:])
    parsed = parse(
        arguments, "uCSa", ("unset", "chdir", "split-string", "argv0"),
        ("ignore-environment", "null", "debug", "block-signal", "default-signal", "ignore-signal"), permute=False,
    )  # fmt: skip
    operands = list(parsed.operands)
    for text in parsed.values("S", "split-string"):
        operands = _split(text) + operands
    found: list[Inner] = []
    while operands and "=" in operands[0]:
        found.append(Inner("variable", operands.pop(0), "env"))
    if operands and operands[0].startswith("-"):
        return found + _env(Call(("env", *operands), call.cwd, call.trail))
    directory = (parsed.values("C", "chdir") or [""])[-1]
    return found + [one._replace(cwd=directory) for one in inner.argv(operands, "env")]


def _split(text: str) -> list[str]:
    plain = re.sub(r"\\[_ c]", " ", text)
    try:
        return shlex.split(plain)
    except ValueError:
        return plain.split()


def _xargs(call: Call) -> list[Inner]:
    parsed = parse(
        call.argv[1:], "adEILnPsS",
        ("arg-file", "delimiter", "eof", "replace", "max-lines", "max-args", "max-procs", "max-chars",
         "process-slot-var"),
        ("null", "no-run-if-empty", "verbose", "interactive", "open-tty", "exit", "show-limits"), permute=False,
    )  # fmt: skip
    command = parsed.operands or ["echo"]
    label = "xargs"
    given = call.stdin
    if parsed.has("a", "arg-file"):
        given = UNKNOWN
    separator = "\0" if parsed.has("0", "null") else None
    marker = next((value or "{}" for value in parsed.values("I", "replace", "i")), None)
    lines = parsed.values("d", "delimiter") or (["\n"] if marker else [])
    items = _items(given, separator, lines)
    found: list[Inner] = []
    if marker is None:
        return inner.argv([*command, *items[:256]], label, "")
    for item in items[:256] or [UNKNOWN]:
        found += inner.argv([part.replace(marker, item) for part in command], label, "")
    return found


def _items(given: str | None, separator: str | None, delimiters: list[str]) -> list[str]:
    if given is None:
        return [UNKNOWN]
    if separator or delimiters:
        parts = re.split("[\0\n]" if separator else "[" + re.escape(delimiters[0][:1] or " ") + "\n]", given)
        return [part for part in parts if part]
    return [part.strip("'\"") for part in given.replace("\0", "\n").split()]


def _parallel(call: Call) -> list[Inner]:
    parsed = parse(
        call.argv[1:], "jPaIdEnNLXSsp",
        ("jobs", "arg-file", "delimiter", "joblog", "results", "timeout", "delay", "retries", "colsep", "tagstring",
         "max-args", "sshlogin", "workdir", "halt", "load", "memfree", "tmpdir"),
        ("dry-run", "pipe", "keep-order", "progress", "bar", "eta", "line-buffer", "ungroup"), permute=False,
    )  # fmt: skip
    words = parsed.operands
    sources = [i for i, word in enumerate(words) if word in (":::", "::::", ":::+", "::::+")]
    command = words[: sources[0]] if sources else words
    values: list[str] = []
    if sources:
        values = [word for word in words[sources[0] + 1 :] if not word.startswith("::")]
        if words[sources[0]].startswith("::::"):
            values = [UNKNOWN]
    else:
        values = (call.stdin or UNKNOWN).splitlines()
    found: list[Inner] = []
    for value in values[:256]:
        text = " ".join(command)
        replaced = _PLACE.sub(value.replace("\\", r"\\"), text)
        if replaced == text:
            replaced = f"{text} {value}".strip()
        found += inner.script(replaced, "parallel")
    return found


def _watch(call: Call) -> list[Inner]:
    parsed = parse(
        call.argv[1:], "nq", ("interval", "equexit"), ("exec", "beep", "color", "differences"), permute=False
    )
    if parsed.has("x", "exec"):
        return inner.argv(parsed.operands, "watch")
    return inner.script(" ".join(parsed.operands), "watch")


def _flock(call: Call) -> list[Inner]:
    parsed = parse(call.argv[1:], "wE", ("timeout", "wait", "conflict-exit-code"), permute=False)
    rest = parse(parsed.operands[1:], "c", ("command",), permute=False)
    scripts = rest.values("c", "command")
    if scripts:
        return inner.script(scripts[0], "flock -c")
    return inner.argv(rest.operands, "flock")


def _script(call: Call) -> list[Inner]:
    parsed = parse(
        call.argv[1:], "cTEIOBom", ("command", "log-io", "log-in", "log-out", "log-timing", "timing", "echo")
    )
    found: list[Inner] = []
    for text in parsed.values("c", "command"):
        found += inner.script(text, "script -c")
    return found + inner.argv(parsed.operands[1:], "script")


def _setarch(call: Call) -> list[Inner]:
    parsed = parse(call.argv[1:], "", (), permute=False)
    operands = parsed.operands
    if operands and re.fullmatch(r"[a-z0-9_]*(86|64|32|arm|ppc|s390|mips|uname)[a-z0-9_]*", operands[0]):
        operands = parse(operands[1:], "", (), permute=False).operands
    return inner.argv(operands, "setarch")


def _gdb(call: Call) -> list[Inner]:
    found: list[Inner] = []
    arguments = call.argv[1:]
    for at, argument in enumerate(arguments):
        if argument in ("--args", "-args", "--"):
            return found + inner.argv(arguments[at + 1 :], "gdb")
        if argument in ("-ex", "--ex", "-eval-command", "--eval-command", "-o", "-iex") and at + 1 < len(arguments):
            text = arguments[at + 1]
            shell = re.match(r"\s*(?:!|shell\s|platform shell\s|make\s)(.*)", text, re.DOTALL)
            found += inner.script(shell.group(1), "gdb shell") if shell else []
            python = re.match(r"\s*(?:python|script|py|pi)\s(.*)", text, re.DOTALL)
            found += inner.code(python.group(1), "python", "gdb python") if python else []
    return found


def _applet(call: Call) -> list[Inner]:
    arguments = call.argv[1:]
    if not arguments or arguments[0].startswith("-"):
        return []
    return inner.argv(arguments, marks.plain(call.argv[0].rpartition("/")[2]))


def _until_double_dash(call: Call) -> list[Inner]:
    arguments = call.argv[1:]
    if "--" in arguments:
        return inner.argv(arguments[arguments.index("--") + 1 :], call.argv[0])
    for at, argument in enumerate(arguments):
        if not argument.startswith("-") and not (
            at and arguments[at - 1].startswith("--") and "=" not in arguments[at - 1]
        ):
            return inner.argv(arguments[at:], call.argv[0])
    return []


def _start_stop(call: Call) -> list[Inner]:
    parsed = parse(call.argv[1:], ROWS["start-stop-daemon"].short, ROWS["start-stop-daemon"].long, permute=False)
    programs = parsed.values("x", "exec", "a", "startas")
    return inner.argv([programs[-1], *parsed.operands], "start-stop-daemon") if programs else []


def _bwrap(call: Call) -> list[Inner]:
    counts = {"--bind": 2, "--ro-bind": 2, "--dev-bind": 2, "--bind-try": 2, "--ro-bind-try": 2, "--symlink": 2,
              "--setenv": 2, "--file": 2, "--chmod": 2, "--bind-data": 2, "--ro-bind-data": 2, "--dev-bind-try": 2,
              "--bind-fd": 2, "--ro-bind-fd": 2, "--unshare-cgroup": 0, "--unshare-user-try": 0,
              "--unshare-all": 0, "--die-with-parent": 0, "--new-session": 0,
              "--clearenv": 0, "--share-net": 0, "--unshare-net": 0, "--unshare-pid": 0, "--unshare-user": 0,
              "--unshare-ipc": 0, "--unshare-uts": 0, "--disable-userns": 0, "--as-pid-1": 0, "--": 0}  # fmt: skip
    arguments, at = call.argv[1:], 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 1 + counts.get(arguments[at], 1)
    return inner.argv(arguments[at:], "bwrap")


def _yarn(call: Call) -> list[Inner]:
    return inner.script(" ".join(call.argv[2:]), "yarn exec") if call.argv[1:2] == ("exec",) else []


SPECIAL = {
    "yarn": _yarn,
    "env": _env,
    "xargs": _xargs,
    "parallel": _parallel,
    "watch": _watch,
    "flock": _flock,
    "script": _script,
    "setarch": _setarch,
    "gdb": _gdb,
    "lldb": _gdb,
    "busybox": _applet,
    "toybox": _applet,
    "schroot": _until_double_dash,
    "op": _until_double_dash,
    "infisical": _until_double_dash,
    "dotenv": _until_double_dash,
    "start-stop-daemon": _start_stop,
    "bwrap": _bwrap,
}

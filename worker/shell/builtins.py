"""What builtins and file commands change in the state of the walk."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

from worker.shell import marks
from worker.shell.limits import MAX_ALTERNATIVES
from worker.shell.marks import DOWNLOAD, UNKNOWN, UNSET
from worker.shell.options import parse
from worker.shell.paths import join
from worker.shell.state import Call, State

LINK = "\0"
"""In front of a path: the file of this name is a copy of, or a link to, that one."""


def _cd(call: Call, state: State) -> None:
    operands = [word for word in call.argv[1:] if not re.fullmatch(r"-[LPe@]+|--", word)]
    if not operands or operands[0] in ("", UNSET):
        state.change_directory(state.home)
    elif operands[0] == "-":
        before = state.value("OLDPWD")
        state.change_directory(before if isinstance(before, str) else None)
    elif marks.has_glob(operands[0]):
        state.change_directory(operands[0])
    else:
        _go(state, operands[0].replace(UNSET, ""))


def _go(state: State, target: str) -> None:
    path = join(state.cwd, target)
    if state.choice and path is not None and state.cwd is not None and len(path) > len(state.cwd):
        return
    state.change_directory(path)


def _pushd(call: Call, state: State) -> None:
    operands = [word for word in call.argv[1:] if word != "-n"]
    state.directories = (*state.directories, state.cwd)
    if operands and not re.fullmatch(r"[+-]\d+", operands[0]):
        _go(state, operands[0])


def _popd(call: Call, state: State) -> None:
    if state.directories:
        state.cwd = state.directories[-1]
        state.directories = state.directories[:-1]


def _declare(call: Call, state: State) -> None:
    for word in call.argv[1:]:
        found = re.match(r"([A-Za-z_]\w*)(\+?)=(.*)", word, re.DOTALL)
        if found:
            state.assign(found.group(1), found.group(3))


def _unset(call: Call, state: State) -> None:
    for word in call.argv[1:]:
        state.variables.pop(word, None)
        if state.conditional == 0:
            state.functions.pop(word, None)


def _set(call: Call, state: State) -> None:
    arguments = call.argv[1:]
    for at, word in enumerate(arguments):
        if word == "--":
            state.params = arguments[at + 1 :]
            return
        if word[:1] not in ("-", "+"):
            if at and re.fullmatch(r"[-+][a-zA-Z]*o", arguments[at - 1]):
                continue
            state.params = arguments[at:]
            return


def _shift(call: Call, state: State) -> None:
    if state.params is not None:
        count = int(call.argv[1]) if len(call.argv) > 1 and call.argv[1].isdigit() and len(call.argv[1]) < 5 else 1
        state.params = state.params[count:]


def _alias(call: Call, state: State) -> None:
    for word in call.argv[1:]:
        name, equals, value = word.partition("=")
        if equals:
            state.aliases[name] = value


def _shopt(call: Call, state: State) -> None:
    if "expand_aliases" in call.argv and any(word.startswith("-") and "s" in word for word in call.argv[1:]):
        state.expand_aliases = True


def _read(call: Call, state: State) -> None:
    parsed = parse(call.argv[1:], "adinNptu", permute=False)
    names = parsed.operands or ["REPLY"]
    lines = [UNKNOWN] if call.stdin is None else call.stdin.split("\0" if "\0" in call.stdin else "\n")
    lines = [line for line in lines if line] or [UNKNOWN]
    lines = lines[: MAX_ALTERNATIVES + 1]
    for array in parsed.values("a"):
        state.assign(array, *[tuple(line.split()) for line in lines], certain=True)
    ifs = call.assignments.get("IFS")
    separators = None if ifs is None else ifs
    if len(names) == 1:
        values = lines if separators == "" else [line.strip(" \t") for line in lines]
        state.assign(names[0], *values, certain=True)
        return
    for at, name in enumerate(names):
        column = [_column(line, at, at == len(names) - 1, separators) for line in lines]
        state.assign(name, *column, certain=True)


def _column(line: str, at: int, last: bool, separators: str | None) -> str:
    parts = re.split(f"[{re.escape(separators)}]", line) if separators else line.split()
    if at >= len(parts):
        return UNKNOWN if marks.has_value_mark(line) else ""
    return " ".join(parts[at:]) if last else parts[at]


def _printf(call: Call, state: State) -> None:
    if call.argv[1:2] == ("-v",) and len(call.argv) > 3:
        from worker.shell.producers import printed

        state.assign(call.argv[2], printed("printf", Call(("printf", *call.argv[3:]), call.cwd, ()), state))


def _mapfile(call: Call, state: State) -> None:
    parsed = parse(call.argv[1:], "CcdnOsu")
    name = parsed.operands[0] if parsed.operands else "MAPFILE"
    lines = (UNKNOWN,) if call.stdin is None else tuple(call.stdin.splitlines())
    state.assign(name, lines)


def _hash(call: Call, state: State) -> None:
    parsed = parse(call.argv[1:], "p")
    for path in parsed.values("p"):
        for name in parsed.operands:
            state.aliases["\0" + name] = path


def _copy(call: Call, state: State) -> None:
    parsed = parse(
        call.argv[1:], "tSmog", ("target-directory", "suffix", "mode", "owner", "group"),
        ("archive", "recursive", "force", "no-target-directory", "symbolic", "verbose", "preserve"),
    )  # fmt: skip
    operands = parsed.operands
    targets = parsed.values("t", "target-directory")
    if targets:
        _copy_to(operands, targets[0] + "/", state)
    elif len(operands) >= 2:
        _copy_to(operands[:-1], operands[-1], state)
    elif len(operands) == 1 and call.argv[0].endswith("ln"):
        _copy_to(operands, "./", state)


def _copy_to(sources: list[str], target: str, state: State) -> None:
    for source in sources:
        name = posixpath.basename(source.rstrip("/"))
        path = join(state.cwd, source)
        content = state.files.get(path or "", LINK + source)
        for destination in (target, f"{target.rstrip('/')}/{name}"):
            where = join(state.cwd, destination)
            if where is not None:
                state.files[where] = content


def _download(call: Call, state: State) -> None:
    short = "oOPdHXuAebFTmxKCEryYzw" if call.argv[0].endswith("wget") else "odHXuAebFTmxKCEryYzwP"
    parsed = parse(call.argv[1:], short,
                   ("output", "output-document", "output-dir", "directory-prefix", "header", "data", "request", "user",
                    "out", "dir"))  # fmt: skip
    paths = [value for value in parsed.values("o", "output", "O", "output-document", "out") if value not in ("", "-")]
    directory = (parsed.values("P", "directory-prefix", "output-dir", "dir") or [""])[0]
    if not paths or call.argv[0].endswith("wget"):
        for url in parsed.operands:
            name = posixpath.basename(re.sub(r"[?#].*", "", url).rstrip("/"))
            if name and (parsed.has("O", "remote-name", "J") or not call.argv[0].endswith("curl")):
                paths.append(name)
    for path in paths:
        where = join(state.cwd, f"{directory}/{path}" if directory else path)
        if where is not None and not where.startswith("/dev/"):
            state.files[where] = DOWNLOAD + "\n"


def _tee(call: Call, state: State) -> None:
    for word in call.argv[1:]:
        where = None if word.startswith("-") else join(state.cwd, word)
        if where is not None:
            state.files[where] = call.stdin or UNKNOWN


def _dd(call: Call, state: State) -> None:
    for word in call.argv[1:]:
        if word.startswith("of="):
            where = join(state.cwd, word[3:])
            if where is not None and not where.startswith("/dev/"):
                state.files[where] = call.stdin or UNKNOWN


def _decode_to_file(call: Call, state: State) -> None:
    """`openssl ... -out f`, `gpg -o f`, `uudecode -o f`, `xxd -r f g`: contents that nobody sees here."""
    for at, word in enumerate(call.argv):
        if word in ("-out", "-o", "--output") and at + 1 < len(call.argv):
            where = join(state.cwd, call.argv[at + 1])
            if where is not None:
                state.files[where] = UNKNOWN


def _history(call: Call, state: State) -> None:
    """`history -s text` remembers, `-a` and `-w` write what was remembered to a file."""
    arguments = call.argv[1:]
    if arguments[:1] == ("-s",):
        before = state.value("history")
        state.assign("history", (before if isinstance(before, str) else "") + " ".join(arguments[1:]) + "\n")
    elif arguments[:1] and arguments[0] in ("-a", "-w") and len(arguments) > 1:
        where = join(state.cwd, arguments[1])
        kept = state.value("history")
        if where is not None and isinstance(kept, str):
            state.files[where] = kept


EFFECTS: dict[str, Callable[[Call, State], None]] = {
    "cd": _cd, "chdir": _cd, "pushd": _pushd, "popd": _popd, "export": _declare, "declare": _declare,
    "local": _declare, "typeset": _declare, "readonly": _declare, "unset": _unset, "set": _set, "shift": _shift,
    "alias": _alias, "shopt": _shopt, "read": _read, "printf": _printf, "mapfile": _mapfile, "readarray": _mapfile,
    "hash": _hash,
    "history": _history, "cp": _copy, "mv": _copy, "ln": _copy, "install": _copy, "link": _copy, "curl": _download,
    "wget": _download, "wget2": _download, "aria2c": _download, "tee": _tee, "sponge": _tee, "dd": _dd,
    "openssl": _decode_to_file, "gpg": _decode_to_file,
}  # fmt: skip

"""What an interpreter or editor on the command line is given to run."""

from __future__ import annotations

import re

from worker.shell import inner
from worker.shell.inner import Inner
from worker.shell.language_table import INTERPRETERS, LONG_CODE
from worker.shell.options import parse
from worker.shell.state import Call

_VERSIONED = re.compile(r"(python|pypy|perl|ruby|php|lua|node|nodejs|tclsh|guile|ipython|vim|gawk)-?[0-9][0-9.]*[a-z]*")
_CODE_OPERAND = frozenset({"awk", "sed"})
_DATA_INPUT = frozenset({"awk", "sed", "vim", "emacs", "octave", "gnuplot", "bc", "dc"})


def interpreter(name: str) -> str | None:
    """The row of INTERPRETERS that a command's name belongs to."""
    if name in INTERPRETERS:
        return name
    found = _VERSIONED.fullmatch(name)
    return found.group(1) if found else None


def given(name: str, call: Call) -> list[Inner]:
    """The code, files and input an interpreter runs."""
    row = interpreter(name)
    if row is None:
        return []
    language, code_options, valued = INTERPRETERS[row]
    arguments = call.argv[1:]
    if language == "vim":
        return _vim(row, arguments, call.stdin)
    if language == "emacs":
        return _emacs(arguments, call)
    if row == "php" and "S" in "".join(arguments[:1]):
        return []
    if row == "deno" and arguments[:1] == ("eval",):
        return inner.code(arguments[-1], language, "deno eval")
    parsed = parse(
        arguments, code_options + valued, tuple(LONG_CODE), ("version", "help", "posix", "quiet", "silent", "in-place"),
        permute=language in _CODE_OPERAND,
    )  # fmt: skip
    found: list[Inner] = []
    label = f"{row} -{code_options[:1]}" if code_options else row
    for option, value in parsed.options:
        if (option in code_options and option not in valued) or option in LONG_CODE:
            found += inner.code(value, language, label)
    if parsed.has("f", "file") and language in _CODE_OPERAND:
        return found + [one for path in parsed.values("f") for one in inner.file(path, language, row)]
    operands = parsed.operands
    if found:
        return found
    if language in _CODE_OPERAND:
        given_values = "".join(f'{name}="{value}";' for name, _, value in map(_partition, parsed.values("v")))
        return inner.code(given_values + operands[0], language, row) if operands else []
    if language in ("sqlite", "lftp"):
        return _with_input(found, call, language, [one for word in operands for one in inner.code(word, language, row)])
    if parsed.has("m"):
        return found
    if operands and operands[0] != "-" and language not in ("ed", "bc", "dc", "gnuplot"):
        return inner.file(operands[0], language, row, operands[1:])
    return _with_input(found, call, language, found)


def _partition(text: str) -> tuple[str, str, str]:
    return text.partition("=")


def _with_input(found: list[Inner], call: Call, language: str, more: list[Inner]) -> list[Inner]:
    if call.stdin is not None:
        kind = "data" if language in ("ed", "bc", "dc", "sqlite", "gnuplot", "lftp", "m4") else "code"
        return [*more, Inner(kind, call.stdin, f"{call.argv[0]} reading its input", language=language)]
    return more


def _vim(row: str, arguments: tuple[str, ...], stdin: str | None) -> list[Inner]:
    found: list[Inner] = []
    if stdin:
        found.append(Inner("data", stdin, f"{row} reading its input", language="vim"))
    for at, word in enumerate(arguments):
        if (word in ("--cmd", "-S") or re.fullmatch(r"-[a-zA-Z]*c", word)) and at + 1 < len(arguments):
            following = arguments[at + 1]
            found += inner.code(following, "vim", f"{row} -c") if word != "-S" else inner.file(following, "vim", row)
        elif word.startswith("+") and len(word) > 1:
            found += inner.code(word[1:], "vim", f"{row} +")
        elif word.startswith("-c") and len(word) > 2:
            found += inner.code(word[2:], "vim", f"{row} -c")
    return found


def _emacs(arguments: tuple[str, ...], call: Call) -> list[Inner]:
    found: list[Inner] = []
    for at, word in enumerate(arguments):
        if word in ("--eval", "-eval", "--execute", "-execute") and at + 1 < len(arguments):
            found += inner.code(arguments[at + 1], "emacs", "emacs --eval")
        elif word in ("--script", "-script", "-l", "--load", "-load", "-x") and at + 1 < len(arguments):
            found += inner.file(arguments[at + 1], "emacs", "emacs --script")
        elif word.startswith(("--eval=", "--execute=")):
            found += inner.code(word.partition("=")[2], "emacs", "emacs --eval")
    return found

"""Languages with their own ways to run something: awk, sed, editors, make, calculators."""

from __future__ import annotations

import re

from worker.shell import inner
from worker.shell.inner import Inner
from worker.shell.literals import STRING, literal
from worker.shell.marks import UNKNOWN

_AWK_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')


_AWK_RUNS = re.compile(
    r"system\s*\(\s*((?:@\d+@\s*)+)|((?:@\d+@\s*)+)\|&?\s*getline|(?<!\|)\|(?!\|)&?\s*((?:@\d+@\s*)+)"
)


_AWK_WRITES = re.compile(r">>?\s*(@\d+@)")


_AWK_ASSIGNS = re.compile(r"(\w+)\s*=\s*((?:@\d+@\s*)+)")


def awk(text: str, label: str) -> list[Inner]:
    found: list[Inner] = []
    strings: list[str] = []

    def keep(match: re.Match[str]) -> str:
        strings.append(literal(match.group()))
        return f"@{len(strings) - 1}@"

    def joined(marks: str) -> str:
        return "".join(strings[int(number)] for number in re.findall(r"@(\d+)@", marks) if int(number) < len(strings))

    program = _AWK_STRING.sub(keep, text)
    for groups in _AWK_RUNS.findall(program):
        found += inner.script(joined("".join(groups)), label)
    for target in _AWK_WRITES.findall(program):
        found += inner.argv(["tee", joined(target)], label, "")
    for name, value in _AWK_ASSIGNS.findall(program):
        if re.search(rf"system\s*\([^)]*\b{name}\b|\b{name}\s*\|&?\s*getline|[^|]\|\s*{name}\b", program):
            found += inner.script(joined(value), label)
    return found


_SED_E = re.compile(
    r"(?:^|[;\n{])\s*(?:\d+|\$|/(?:[^/\\]|\\.)*/)?(?:,(?:\d+|\$|/(?:[^/\\]|\\.)*/))?\s*!?\s*e(?:[ \t]+([^\n]*)|\s*$|;)"
)


_SED_S = re.compile(
    r"(?:^|[;\n{/0-9$ ])s([^\w\s\\])((?:(?!\1)[^\\]|\\.)*)\1((?:(?!\1)[^\\]|\\.)*)\1([0-9gpiImM]*e[0-9gpiImMe]*)",
    re.DOTALL,
)


_SED_W = re.compile(r"(?:^|[;\n{/0-9$ ])w[ \t]+([^\n;}]+)")


def sed(text: str, label: str) -> list[Inner]:
    found: list[Inner] = []
    for match in _SED_E.finditer(text):
        found += inner.script(match.group(1) or UNKNOWN, label)
    for match in _SED_S.finditer(text):
        found += inner.script(re.sub(r"\\(.)", r"\1", match.group(3)), label)
    for match in _SED_W.finditer(text):
        found += inner.argv(["tee", match.group(1).strip()], label, "")
    return found


def vim(text: str, label: str) -> list[Inner]:
    found: list[Inner] = []
    for part in re.split(r"[|\n](?!\|)", text) if "!" not in text else text.split("\n"):
        shell = re.match(
            r"\s*:*\s*(?:silent!?\s+|exe\w*\s+['\"])*(?:[\d%.,$]*\s*(?:r|w|read|write)?\s*!|te(?:rminal)?\s+)(.*)",
            part,
            re.DOTALL,
        )
        if shell:
            found += inner.script(shell.group(1), label)
        script = re.match(r"\s*:*\s*(?:py(?:3|thon3?|x)?|lua|perl|ruby)\s+(.*)", part, re.DOTALL)
        if script:
            found += inner.code(script.group(1), "python", label)
        written = re.match(r"\s*:*\s*(?:w|write|sav|saveas)!?\s+([^!>\s]\S*)", part)
        if written:
            found += inner.argv(["tee", written.group(1)], label, "")
    for match in re.finditer(
        rf"\b(?:system|systemlist|termopen|jobstart|job_start|os\.execute)\s*\(\s*({STRING})", text
    ):
        found += inner.script(literal(match.group(1)), label)
    return found


def make(text: str, label: str) -> list[Inner]:
    found: list[Inner] = []
    joined = text.replace("\\\n", " ")
    recipes = [line.lstrip("\t@-+ ") for line in joined.split("\n") if line.startswith("\t")]
    recipes += [
        match.group(1).lstrip("@-+ ") for match in re.finditer(r"^[^\t#=\n]*:[^=\n;]*;(.*)$", joined, re.MULTILINE)
    ]
    recipes += [match.group(1) for match in re.finditer(r"\$\(shell\s+((?:[^()]|\([^()]*\))*)\)", joined)]
    recipes += [match.group(1) for match in re.finditer(r"^[\w.-]+\s*!=\s*(.*)$", joined, re.MULTILINE)]
    for recipe in recipes[:512]:
        found += inner.script(recipe.replace("$$", "\0").replace("$(", "${").replace("\0", "$"), label)
    return found


def emacs(text: str, label: str) -> list[Inner]:
    found: list[Inner] = []
    for match in re.finditer(
        r'\(\s*(?:shell-command(?:-to-string)?|call-process-shell-command|async-shell-command|compile|term|ansi-term)\s+"((?:[^"\\]|\\.)*)"',
        text,
    ):
        found += inner.script(literal('"' + match.group(1) + '"'), label)
    for match in re.finditer(r'\(\s*(?:delete-directory|delete-file)\s+"((?:[^"\\]|\\.)*)"', text):
        found += inner.argv(["rm", "-rf", match.group(1)], label)
    return found


def bang_lines(text: str, label: str) -> list[Inner]:
    found: list[Inner] = []
    for match in re.finditer(r"(?:^|[\n;])\s*(?:!|\.shell\s|\.system\s|shell\s|sh\s)\s*([^\n]*)", text):
        found += inner.script(match.group(1).strip().strip("'\""), label)
    for match in re.finditer(rf"\b(?:system|exec|esyscmd|syscmd|unix)\s*\(?\s*({STRING}|`[^']*')", text):
        found += inner.script(literal(match.group(1)), label)
    return found

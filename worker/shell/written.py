"""Which files a command writes through its operands and options."""

from __future__ import annotations

import re

from worker.shell.options import parse
from worker.shell.state import Call

_OUTPUT_OPTION = frozenset({
    "curl", "wget", "sort", "gcc", "g++", "cc", "clang", "info", "openssl", "gpg", "gpg2", "go", "rustc", "ld", "as",
    "nasm", "xsltproc", "pandoc", "uudecode", "strace", "ltrace", "tree", "shuf", "jq", "yq", "tidy", "bison", "flex",
    "gawk", "age", "base64", "wkhtmltopdf", "ssh-keygen", "perf", "valgrind", "tcpdump", "nmap",
})  # fmt: skip
_IN_PLACE = re.compile(r"-[a-zA-Z]*i|--in-place")


def targets(name: str, call: Call) -> list[str]:
    """The paths, as written on the line."""
    arguments = call.argv[1:]
    if name in ("tee", "sponge", "touch", "truncate", "shred", "nano", "vim", "vi", "ed", "ex"):
        return [word for word in arguments if not word.startswith(("-", "+"))]
    if name in ("dd", "dcfldd", "dc3dd"):
        return [word.partition("=")[2] for word in arguments if word.startswith(("of=", "of:="))]
    if name in ("cp", "mv", "install", "ln", "rsync", "scp", "link"):
        parsed = parse(
            arguments, "tSmogieFPo", ("target-directory", "suffix", "mode", "owner", "group", "rsh"), ("directory",)
        )
        if name == "install" and parsed.has("d", "directory"):
            return []
        return parsed.values("t", "target-directory") or (parsed.operands[-1:] if len(parsed.operands) > 1 else [])
    if name in ("sed", "gsed", "perl", "ruby") and any(_IN_PLACE.match(word) for word in arguments):
        return [word for word in arguments if not word.startswith("-")][1:] or list(arguments[-1:])
    if name == "find":
        return [
            arguments[at + 1]
            for at, word in enumerate(arguments[:-1])
            if word in ("-fprint", "-fprintf", "-fls", "-fprint0")
        ]
    if name == "patch":
        return parse(arguments, "pioDFBdrVYz", ("output", "input", "strip")).operands[:1]
    if name in _OUTPUT_OPTION:
        return _outputs(arguments)
    return []


def _outputs(arguments: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for at, word in enumerate(arguments):
        following = arguments[at + 1 : at + 2]
        if word in ("-o", "-O", "-out", "--output", "--output-document", "--out", "-w", "-f") or re.fullmatch(
            r"-[a-zA-Z]*[oO]", word
        ):
            found += following
        elif word.startswith(("--output=", "--output-document=", "--out=", "-o/", "-O/")):
            found.append(word.partition("=")[2] or word[2:])
    return found

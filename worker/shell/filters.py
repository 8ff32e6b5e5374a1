"""Filters whose output follows from their input: decoders, `rev`, `tr`, `cut`, simple `sed`."""

from __future__ import annotations

import base64
import binascii
import re

from worker.shell import marks
from worker.shell.escapes import decode
from worker.shell.marks import DECODED, DOWNLOAD, UNKNOWN
from worker.shell.options import parse
from worker.shell.paths import join
from worker.shell.state import Call, State


def content(path: str, call: Call, state: State) -> str:
    if path == "-" or path == "/dev/stdin":
        return call.stdin or ""
    canonical = join(call.cwd, path)
    if canonical is not None and canonical in state.files:
        return state.files[canonical]
    if path.startswith(("/dev/tcp/", "/dev/udp/")):
        return DOWNLOAD + "\n"
    if path in ("/dev/null",):
        return ""
    return (DECODED if path.startswith(("/dev/", "/proc/")) else UNKNOWN) + "\n"


def input_of(call: Call, state: State, valued: str = "") -> str | None:
    operands = parse(call.argv[1:], valued).operands
    if operands:
        text = "".join(content(path, call, state) for path in operands)
        return text
    return call.stdin


def decoded_base64(call: Call, state: State) -> str | None:
    parsed = parse(call.argv[1:], "wi", ("wrap",), ("decode", "ignore-garbage"))
    if not parsed.has("d", "D", "decode"):
        text = call.stdin
        if text is None or parsed.operands or marks.has_value_mark(text):
            return None
        return base64.b64encode(text.encode()).decode() + "\n"
    text = "".join(content(path, call, state) for path in parsed.operands) if parsed.operands else call.stdin
    if text is None or marks.has_value_mark(text):
        return None
    try:
        if call.argv[0].endswith("32"):
            return base64.b32decode(_padded(text)).decode("utf-8", "replace")
        return base64.b64decode(re.sub(r"[^A-Za-z0-9+/]", "", text) + "==").decode("utf-8", "replace")
    except (ValueError, binascii.Error):
        return None


def _padded(text: str) -> str:
    bare = re.sub(r"[\s=]", "", text).upper()
    return bare + "=" * (-len(bare) % 8)


def openssl(call: Call, state: State) -> str | None:
    if ("base64" in call.argv and "-d" in call.argv) or ("-base64" in call.argv and "-d" in call.argv):
        return decoded_base64(Call(("base64", "-d"), call.cwd, call.trail, stdin=call.stdin), state)
    return None


def xxd(call: Call, state: State) -> str | None:
    text = input_of(call, state, "clgso")
    if "-r" not in call.argv and not any(re.fullmatch(r"-[a-z]*r[a-z]*", word) for word in call.argv[1:]):
        return None
    if text is None or marks.has_value_mark(text):
        return None
    digits = re.sub(r"^[0-9a-fA-F]+: |  .*$", "", text, flags=re.MULTILINE)
    try:
        return bytes.fromhex(re.sub(r"[^0-9a-fA-F]", "", digits)).decode("utf-8", "replace")
    except ValueError:
        return None


def rev(call: Call, state: State) -> str | None:
    text = input_of(call, state)
    return None if text is None else "\n".join(line[::-1] for line in text.split("\n"))


def tac(call: Call, state: State) -> str | None:
    text = input_of(call, state)
    return None if text is None else "".join(line + "\n" for line in reversed(text.splitlines()))


_CLASSES = {"upper": "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "lower": "abcdefghijklmnopqrstuvwxyz", "digit": "0123456789",
            "space": " \t\n\r\f\v", "blank": " \t"}  # fmt: skip


def _set(text: str) -> str:
    text = decode(marks.literal_globs(text))
    text = re.sub(r"\[:(\w+):\]", lambda match: _CLASSES.get(match.group(1), ""), text)
    return re.sub(
        r"(.)-(.)", lambda match: "".join(map(chr, range(ord(match.group(1)), min(ord(match.group(2)), 0x250) + 1))),
        text, flags=re.DOTALL,
    )  # fmt: skip


def tr(call: Call, state: State) -> str | None:
    parsed = parse(call.argv[1:])
    text = call.stdin
    if text is None or not parsed.operands:
        return None
    sets = [_set(operand) for operand in parsed.operands[:2]]
    if parsed.has("c", "C", "complement"):
        if not parsed.has("d", "delete"):
            return None
        return "".join(char for char in text if char in sets[0])
    if parsed.has("d", "delete") or len(sets) == 1:
        return text.translate({ord(char): None for char in sets[0]}) if parsed.has("d", "delete") else text
    second = sets[1].ljust(len(sets[0]), sets[1][-1:] or " ")
    return text.translate({ord(a): b for a, b in zip(sets[0], second, strict=False)})


def sed(call: Call, state: State) -> str | None:
    text = call.stdin
    parsed = parse(call.argv[1:], "ef", ("expression", "file"), permute=True)
    scripts = parsed.values("e", "expression") or parsed.operands[:1]
    if text is None or len(scripts) != 1 or parsed.has("n", "f") or len(text) > 4096:
        return None
    found = re.fullmatch(r"s([^\w\s\\])((?:(?!\1)[^\\\[\](){}*+?.^$|])*)\1((?:(?!\1)[^\\&])*)\1([g]?)", scripts[0])
    if not found:
        return None
    return text.replace(found.group(2), found.group(3), -1 if found.group(4) else text.count(found.group(2)))


def cut(call: Call, state: State) -> str | None:
    parsed = parse(call.argv[1:], "cfdb", ("characters", "fields", "delimiter"))
    text = call.stdin
    span = parsed.values("c", "b", "f", "characters", "fields")
    found = re.fullmatch(r"(\d{1,5})?(-)?(\d{1,5})?", span[0]) if len(span) == 1 else None
    if text is None or not found or not (found.group(1) or found.group(3)):
        return None
    first = int(found.group(1) or 1)
    last = int(found.group(3)) if found.group(3) else None if found.group(2) else first
    separator = (parsed.values("d", "delimiter") or ["\t"])[0] if parsed.has("f", "fields") else ""
    lines = []
    for line in text.splitlines():
        parts = line.split(separator) if separator else list(line)
        lines.append(separator.join(parts[first - 1 : last]) + "\n")
    return "".join(lines)

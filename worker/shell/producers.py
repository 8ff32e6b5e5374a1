"""What a command prints, where its words and input tell."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable

from worker.shell import marks
from worker.shell.escapes import decode
from worker.shell.launchers import find_roots, found_paths
from worker.shell.marks import DECODED, DOWNLOAD, FOREIGN, LISTED, UNKNOWN
from worker.shell.options import parse
from worker.shell.paths import join
from worker.shell.state import Call, State

DOWNLOADERS = frozenset({
    "curl", "wget", "wget2", "fetch", "aria2c", "http", "https", "xh", "lynx", "w3m", "links", "elinks", "nc",
    "ncat", "netcat", "socat", "ftp", "tftp", "telnet", "gsutil", "gh", "glab", "ssh", "lwp-request", "GET", "axel",
    "curlie", "httpie", "openssl-s_client",
})  # fmt: skip
ENVIRONMENT_PRINTERS = frozenset({
    "ssh-agent", "apt-config", "direnv", "pyenv", "rbenv", "nodenv", "jenv", "goenv", "conda", "mamba",
    "micromamba", "brew", "opam", "luarocks", "minikube", "docker-machine", "starship", "dircolors", "lesspipe",
    "register-python-argcomplete", "zoxide", "fnm", "mise", "rtx", "keychain", "gpg-agent", "dbus-launch", "resize",
    "thefuck", "hub", "aws_completer", "fzf", "atuin", "tmuxifier", "opam-env", "guix", "devbox", "asdf",
    "perlbrew", "plenv", "rustup", "stack", "navi", "scmpuff", "module", "modulecmd", "locale", "getopt", "stty",
    "nvm", "sdk",
})  # fmt: skip
_DECODERS = frozenset({
    "gunzip", "zcat", "gzip", "bunzip2", "bzcat", "bzip2", "xz", "xzcat", "unxz", "zstd", "zstdcat", "unzstd",
    "lz4", "lz4cat", "lzma", "openssl", "gpg", "gpg2", "age", "uudecode", "unzip", "base64", "base32", "basenc",
    "xxd", "brotli", "7z", "ascii85", "qprint", "uncompress", "shuf", "od", "hexdump",
})  # fmt: skip
_SILENT = frozenset({
    "true", "false", ":", "cd", "pushd", "popd", "mkdir", "export", "unset", "set", "shift", "touch", "chmod",
    "chown", "rm", "mv", "cp", "ln", "sleep", "wait", "test", "[", "exit", "return", "break", "continue", "trap",
    "alias", "shopt", "source", ".", "read", "local", "declare", "typeset", "readonly", "umask", "kill", "exec",
    "hash", "umount", "mount", "eval", "let", "getopts", "mapfile", "readarray", "ulimit", "disown", "bg", "enable",
    "rmdir", "truncate",
})  # fmt: skip
_TEXT_LIMIT = 16 * 1024


def printed(name: str, call: Call, state: State) -> str:
    """The output, with marks for what only the run would tell."""
    if name in _SILENT:
        return ""
    maker = _MAKERS.get(name)
    stdin = call.stdin
    if maker is not None and (stdin is None or len(stdin) <= _TEXT_LIMIT):
        made = maker(call, state)
        if made is not None:
            return made
    if name in ENVIRONMENT_PRINTERS or "completion" in call.argv[1:3]:
        return f"export ENVIRONMENT={UNKNOWN}\n"
    if name in DOWNLOADERS and not (name == "ssh" and len(call.argv) < 2):
        return DOWNLOAD + "\n"
    if stdin and marks.has_value_mark(stdin):
        for mark in FOREIGN:
            if mark in stdin:
                return mark + "\n"
    return (DECODED if name in _DECODERS else UNKNOWN) + "\n"


def _echo(call: Call, state: State) -> str:
    arguments = list(call.argv[1:])
    newline, escapes = "\n", False
    while arguments and re.fullmatch(r"-[neE]+", arguments[0]):
        flags = arguments.pop(0)
        newline = "" if "n" in flags else newline
        escapes = "e" in flags or (escapes and "E" not in flags)
    text = " ".join(marks.literal_globs(argument) for argument in arguments)
    return (decode(text) if escapes else text) + newline


_FORMAT = re.compile(r"%(?:[-+ #0]*(?:\d+|\*)?(?:\.\d+)?)([a-zA-Z%])")


def _printf(call: Call, state: State) -> str:
    arguments = [marks.literal_globs(argument) for argument in call.argv[1:]]
    if arguments[:1] == ["--"]:
        arguments = arguments[1:]
    if arguments[:1] == ["-v"]:
        return ""
    if not arguments:
        return ""
    template, values = decode(arguments[0]), arguments[1:]
    text = ""
    for _ in range(256):
        filled, used = _filled(template, values)
        text += filled
        values = values[used:]
        if not values or not used or len(text) > _TEXT_LIMIT:
            break
    return text


def _filled(template: str, values: list[str]) -> tuple[str, int]:
    """One pass over a printf format; how many of the values it took."""
    parts: list[str] = []
    at = used = 0
    for match in _FORMAT.finditer(template):
        parts.append(template[at : match.start()])
        at = match.end()
        kind = match.group(1)
        if kind == "%":
            parts.append("%")
            continue
        value = values[used] if used < len(values) else ""
        used += 1
        parts.append(decode(value) if kind == "b" else value[:1] if kind == "c" else value)
    return "".join([*parts, template[at:]]), used


def _cat(call: Call, state: State) -> str:
    operands = [word for word in call.argv[1:] if not word.startswith("-") or word == "-"]
    if not operands:
        return call.stdin if call.stdin is not None else ""
    return "".join(_content(path, call, state) for path in operands)


def _content(path: str, call: Call, state: State) -> str:
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


def _input(call: Call, state: State, valued: str = "") -> str | None:
    operands = parse(call.argv[1:], valued).operands
    if operands:
        text = "".join(_content(path, call, state) for path in operands)
        return text
    return call.stdin


def _base64(call: Call, state: State) -> str | None:
    parsed = parse(call.argv[1:], "wi", ("wrap",), ("decode", "ignore-garbage"))
    if not parsed.has("d", "D", "decode"):
        text = call.stdin
        if text is None or parsed.operands or marks.has_value_mark(text):
            return None
        return base64.b64encode(text.encode()).decode() + "\n"
    text = "".join(_content(path, call, state) for path in parsed.operands) if parsed.operands else call.stdin
    if text is None or marks.has_value_mark(text):
        return None
    try:
        if call.argv[0].endswith("32"):
            return base64.b32decode(text.strip() + "=" * (-len(text.strip()) % 8)).decode("utf-8", "replace")
        return base64.b64decode(re.sub(r"[^A-Za-z0-9+/]", "", text) + "==").decode("utf-8", "replace")
    except (ValueError, binascii.Error):
        return None


def _openssl(call: Call, state: State) -> str | None:
    if ("base64" in call.argv and "-d" in call.argv) or ("-base64" in call.argv and "-d" in call.argv):
        return _base64(Call(("base64", "-d"), call.cwd, call.trail, stdin=call.stdin), state)
    return None


def _xxd(call: Call, state: State) -> str | None:
    text = _input(call, state, "clgso")
    if "-r" not in call.argv and not any(re.fullmatch(r"-[a-z]*r[a-z]*", word) for word in call.argv[1:]):
        return None
    if text is None or marks.has_value_mark(text):
        return None
    digits = re.sub(r"^[0-9a-fA-F]+: |  .*$", "", text, flags=re.MULTILINE)
    try:
        return bytes.fromhex(re.sub(r"[^0-9a-fA-F]", "", digits)).decode("utf-8", "replace")
    except ValueError:
        return None


def _rev(call: Call, state: State) -> str | None:
    text = _input(call, state)
    return None if text is None else "\n".join(line[::-1] for line in text.split("\n"))


def _tac(call: Call, state: State) -> str | None:
    text = _input(call, state)
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


def _tr(call: Call, state: State) -> str | None:
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


def _sed(call: Call, state: State) -> str | None:
    text = call.stdin
    parsed = parse(call.argv[1:], "ef", ("expression", "file"), permute=True)
    scripts = parsed.values("e", "expression") or parsed.operands[:1]
    if text is None or len(scripts) != 1 or parsed.has("n", "f") or len(text) > 4096:
        return None
    found = re.fullmatch(r"s([^\w\s\\])((?:(?!\1)[^\\\[\](){}*+?.^$|])*)\1((?:(?!\1)[^\\&])*)\1([g]?)", scripts[0])
    if not found:
        return None
    return text.replace(found.group(2), found.group(3), -1 if found.group(4) else text.count(found.group(2)))


def _head(call: Call, state: State) -> str | None:
    return _input(call, state, "nc")


def _cut(call: Call, state: State) -> str | None:
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


def _which(call: Call, state: State) -> str | None:
    names = [word for word in call.argv[1:] if not word.startswith("-")]
    return "".join(name + "\n" for name in names) or None


def _pwd(call: Call, state: State) -> str:
    return (call.cwd or UNKNOWN) + "\n"


def _mktemp(call: Call, state: State) -> str:
    return f"/tmp/tmp.{UNKNOWN}\n"


def _git(call: Call, state: State) -> str | None:
    if "--show-toplevel" in call.argv:
        return state.home + "\n"
    return None


def _dirname(call: Call, state: State) -> str | None:
    words = [word for word in call.argv[1:] if not word.startswith("-")]
    if not words or marks.SELF in words[0]:
        return None
    return (words[0].rstrip("/").rpartition("/")[0] or ("/" if words[0].startswith("/") else ".")) + "\n"


def _basename(call: Call, state: State) -> str | None:
    words = [word for word in call.argv[1:] if not word.startswith("-")]
    return (
        words[0].rstrip("/").rpartition("/")[2].removesuffix(words[1] if len(words) > 1 else "\0") + "\n"
        if words
        else None
    )


def _realpath(call: Call, state: State) -> str | None:
    words = [word for word in call.argv[1:] if not word.startswith("-")]
    return (join(call.cwd, words[0]) or UNKNOWN) + "\n" if len(words) == 1 else None


def _find(call: Call, state: State) -> str:
    return "".join(line + "\n" for line in found_paths(call.argv, find_roots(call.argv)))


def _ls(call: Call, state: State) -> str:
    operands = [word for word in call.argv[1:] if not word.startswith("-")]
    return "".join((word if marks.has_glob(word) else LISTED) + "\n" for word in operands or ["."])


def _seq(call: Call, state: State) -> str:
    return UNKNOWN + "\n"


def _through(call: Call, state: State) -> str | None:
    return call.stdin


def _wget(call: Call, state: State) -> str:
    parsed = parse(call.argv[1:], "OoaPUeitTwQlARDIX", ("output-document", "directory-prefix"))
    return DOWNLOAD + "\n" if "-" in parsed.values("O", "output-document") or "/dev/stdout" in call.argv else ""


_MAKERS: dict[str, Callable[[Call, State], str | None]] = {
    "echo": _echo, "printf": _printf, "print": _echo, "cat": _cat, "tac": _tac, "bat": _cat, "nl": _cat, "less": _cat,
    "more": _cat, "base64": _base64, "gbase64": _base64, "base32": _base64, "openssl": _openssl, "xxd": _xxd,
    "rev": _rev, "tr": _tr, "sed": _sed, "head": _head, "tail": _head, "cut": _cut, "which": _which, "command": _which,
    "type": _which, "pwd": _pwd, "mktemp": _mktemp, "git": _git, "dirname": _dirname, "basename": _basename,
    "realpath": _realpath, "readlink": _realpath, "find": _find, "fd": _ls, "ls": _ls, "seq": _seq, "tee": _through,
    "sort": _through, "uniq": _through, "grep": _through, "pv": _through, "sponge": _through, "wget": _wget,
    "dos2unix": _through, "fold": _through, "stdbuf": _through, "strings": _through, "iconv": _through,
}  # fmt: skip

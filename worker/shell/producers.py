"""What a command prints, where its words and input tell."""

from __future__ import annotations

import re
from collections.abc import Callable

from worker.shell import marks
from worker.shell.escapes import decode
from worker.shell.filters import content, cut, decoded_base64, input_of, openssl, rev, sed, tac, tr, xxd
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
            return made.replace(marks.FILE, UNKNOWN) if marks.FILE in made else made
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
    text = " ".join(arguments)
    return (decode(text) if escapes else text) + newline


_FORMAT = re.compile(r"%(?:[-+ #0]*(?:\d+|\*)?(?:\.\d+)?)([a-zA-Z%])")


def _printf(call: Call, state: State) -> str:
    arguments = list(call.argv[1:])
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


def _formatted(kind: str, value: str) -> str:
    if kind in "xXo" and re.fullmatch(r"\d{1,9}|0x[0-9a-fA-F]{1,8}|'.", value):
        return format(ord(value[1]) if value[0] == "'" else int(value, 0 if value[:2] == "0x" else 10), kind)
    return decode(value) if kind == "b" else value[:1] if kind == "c" else value


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
        parts.append(_formatted(kind, value))
    return "".join([*parts, template[at:]]), used


def _cat(call: Call, state: State) -> str:
    operands = [word for word in call.argv[1:] if not word.startswith("-") or word == "-"]
    if not operands:
        return call.stdin if call.stdin is not None else ""
    return "".join(content(path, call, state) for path in operands)


def _head(call: Call, state: State) -> str | None:
    return _picked(input_of(call, state, "nc"))


def _picked(text: str | None) -> str | None:
    """Some of the names that were listed, rather than all."""
    return text.replace(LISTED, f"some{LISTED}") if text is not None and LISTED in text else text


def _grep(call: Call, state: State) -> str | None:
    return _picked(call.stdin)


def _which(call: Call, state: State) -> str | None:
    names = [word for word in call.argv[1:] if not word.startswith("-")]
    return "".join(name + "\n" for name in names) or None


def _pwd(call: Call, state: State) -> str:
    return (call.cwd or UNKNOWN) + "\n"


def _mktemp(call: Call, state: State) -> str:
    return f"/tmp/tmp.{UNKNOWN}\n"  # noqa: S108


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
    if not operands:
        return f"./{LISTED}\n"
    return "".join((word if marks.has_glob(word) else LISTED) + "\n" for word in operands)


def _seq(call: Call, state: State) -> str:
    return UNKNOWN + "\n"


def _through(call: Call, state: State) -> str | None:
    return call.stdin


def _wget(call: Call, state: State) -> str:
    parsed = parse(call.argv[1:], "OoaPUeitTwQlARDIX", ("output-document", "directory-prefix"))
    return DOWNLOAD + "\n" if "-" in parsed.values("O", "output-document") or "/dev/stdout" in call.argv else ""


_MAKERS: dict[str, Callable[[Call, State], str | None]] = {
    "echo": _echo, "printf": _printf, "print": _echo, "cat": _cat, "tac": tac, "bat": _cat, "nl": _cat, "less": _cat,
    "more": _cat, "base64": decoded_base64, "gbase64": decoded_base64, "base32": decoded_base64, "openssl": openssl,
    "xxd": xxd,
    "rev": rev, "tr": tr, "sed": sed, "head": _head, "tail": _head, "cut": cut, "which": _which, "command": _which,
    "type": _which, "pwd": _pwd, "mktemp": _mktemp, "git": _git, "dirname": _dirname, "basename": _basename,
    "realpath": _realpath, "readlink": _realpath, "find": _find, "fd": _ls, "ls": _ls, "seq": _seq, "tee": _through,
    "sort": _through, "uniq": _through,
    "grep": _grep,
    "egrep": _grep, "pv": _through, "sponge": _through, "wget": _wget,
    "dos2unix": _through, "fold": _through, "stdbuf": _through, "strings": _through, "iconv": _through,
}  # fmt: skip

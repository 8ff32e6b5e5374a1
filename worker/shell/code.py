"""Programs in other languages given on the command line: the commands and files their literals name.

No interpreter of any of them: string literals next to calls that run, remove or open something. What is computed is
not seen.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re

from worker.shell import inner
from worker.shell.inner import Inner
from worker.shell.languages import awk, bang_lines, emacs, make, sed, vim
from worker.shell.literals import STRING, literal
from worker.shell.marks import DOWNLOAD

_STRINGS = re.compile(STRING, re.DOTALL)


_LIST = rf"[\[(]?\s*{STRING}(?:\s*,\s*\[?\s*{STRING})*"


_RUNS = re.compile(
    rf"\b(system|popen[234]?|Popen|exec[lv]?[pe]{{0,2}}|run|call|check_call|check_output|getoutput|getstatusoutput|"
    rf"spawn[lv]?p?e?|posix_spawnp?|spawnSync|execSync|execFile|execFileSync|shell_exec|passthru|proc_open|pcntl_exec|"
    rf"create_subprocess_shell|create_subprocess_exec|fork_exec|pty\.spawn|IO\.popen|io\.popen|os\.execute|execute|"
    rf"Open3\.\w+|sh|\$)\s*[( ]?\s*(?:os\.P_\w+\s*,\s*)?({_LIST})",
    re.DOTALL,
)  # fmt: skip


_REMOVES = re.compile(
    rf"\b(rmtree|rm_rf|rm_r|remove_tree|remove_entry_secure|rmSync|rmdirSync|rmdir|removedirs|unlink|unlinkSync|"
    rf"remove|rm|delete_tree|remove_entry|removeSync|emptyDirSync|delete)"
    rf"\s*[( ]\s*(?:pathlib\.|Path\()?\(?\s*({STRING})",
    re.DOTALL,
)
_PATH_METHOD = re.compile(rf"Path\(\s*({STRING})\s*\)\.(\w+)\(", re.DOTALL)


_OPENS = re.compile(
    rf"\b(open|fopen|File\.(?:open|write|read|new)|readFileSync|writeFileSync|appendFileSync|readFile|writeFile|"
    rf"file_get_contents|file_put_contents|copyfile|copy|slurp)\s*[( ]\s*(?:(?:my\s+)?\$?\w+\s*,\s*)?({STRING})"
    rf"(?:\s*,\s*(?:mode\s*=\s*)?({STRING}))?",
    re.DOTALL,
)


_CHMOD = re.compile(rf"\b(?:chmod|chmodSync)\s*\(\s*({STRING})\s*,\s*(?:0o?)?(\d+)", re.DOTALL)


_BACKTICKS = re.compile(r"`([^`]+)`|\b(?:qx|%x)\s*[({\[/|!]([^)}\]/|!]+)|%x[({\[]([^)}\]]+)", re.DOTALL)


_CONCAT = re.compile(r"""(["'])((?:(?!\1)[^\\])*)\1\s*[+.]\s*\1((?:(?!\1)[^\\])*)\1""")


_DECODE = re.compile(
    r"""(?:base64\.|__import__\([\"']\w+[\"']\)\.)?(?:b64decode|standard_b64decode|decode_base64|base64_decode|Base64\.decode64|atob|unhexlify|"""
    r"""bytes\.fromhex|hex2bin)\s*\(\s*b?(["'])([A-Za-z0-9+/=_-]*)\1\s*\)(?:\.decode\([^)]*\))?"""
)


_HOME = re.compile(
    r"(?:os\.path\.)?expanduser\(\s*['\"]~['\"]\s*\)|(?:pathlib\.)?Path\.home\(\)|os\.environ\[['\"]HOME['\"]\]|"
    r"(?:os\.)?(?:getenv|environ\.get)\(\s*['\"]HOME['\"]\s*\)|ENV\[['\"]HOME['\"]\]|\$ENV\{['\"]?HOME['\"]?\}|"
    r"process\.env\.HOME|(?:require\(['\"]os['\"]\)|os)\.homedir\(\)|Dir\.home"
)
_CWD = re.compile(r"os\.getcwd\(\)|process\.cwd\(\)|Dir\.pwd|(?:pathlib\.)?Path\.cwd\(\)")
_GETATTR = re.compile(r"getattr\(\s*[\w.]+\s*,\s*['\"](\w+)['\"]\s*\)")
_JOINED = re.compile(rf"(?:''|\"\")\.join\(\s*[\[(]((?:\s*{STRING}\s*,?)+)[\])]\s*\)", re.DOTALL)
_PERL_QUOTE = re.compile(
    r"\bqq?\s*(?:\(((?:[^()]|\([^()]*\))*)\)|\{((?:[^{}]|\{[^{}]*\})*)\}|\[([^]]*)\]|<([^>]*)>|([^\w\s,;=()])(.*?)\5)",
    re.DOTALL,
)
_RENAMES = re.compile(
    r"\b(system|popen|run|call|check_output|check_call|Popen|rmtree|exec|execSync|spawn|spawnSync|execFile|execFileSync|"
    r"rmSync|remove|unlink|getoutput)\s*(?:as\s+|:\s*)(\w+)"
)
_ASSIGNED = re.compile(rf"(?:^|[;\n{{(,]|\b(?:let|const|var|my|local)\s)\s*[$@]?(\w+)\s*=\s*({STRING}|\[[^\]]*\])")


_EVALUATES = re.compile(
    rf"\b(exec|eval|compile|instance_eval|assert|loadstring|load|Function)\s*\(?\s*({STRING})", re.DOTALL
)


_FETCHES = re.compile(
    r"urlopen|urlretrieve|requests\.get|httpx\.get|LWP::|Net::HTTP|open-uri|fetch\(|https?\.get\(|file_get_contents\(\s*['\"]https?:"
)


_BOMB = re.compile(
    r"fork\s+while\b|fork\(\)\s+for\b|while\s*\(?\s*(?:True|1|true)?\s*\)?\s*[:{]?\s*(?:os\.|posix\.|Process\.)?fork|loop\s*(?:do|\{)\s*(?:Process\.)?fork|while\s*\(?\s*(?:os\.)?fork"
)


_KILLS = re.compile(r"\bkill(?:pg)?\s*[( ]\s*(?:(-1)\s*,|['\"]?(?:SIG)?(?:KILL|TERM|9|15)['\"]?\s*,\s*(-1))")


_LOCKED_BACKTICKS = frozenset({"perl", "ruby", "php"})


_ANY_HINT = re.compile(
    r"system|open|exec|run|call|check_|output|spawn|sh\b|passthru|rm|remove|unlink|rmdir|fork|kill|chmod|Path|read|write|"
    r"file_|copy|`|qx|%x|eval|compile|load|delete|assert|Function|execute|\$"
)  # fmt: skip


def inside(language: str, text: str, label: str) -> list[Inner]:
    """The commands a program's literals name."""
    special = _LANGUAGES.get(language)
    if special is not None:
        return special(text, label)
    if not _ANY_HINT.search(text) or len(text) > 65536:
        return []
    return _general(language, text, label)


def _decoded(match: re.Match[str]) -> str:
    data = match.group(2)
    try:
        raw = (
            bytes.fromhex(data)
            if "hex" in match.group(0)
            else base64.b64decode(data + "===", altchars=b"-_" if "-" in data else None)
        )
    except (ValueError, binascii.Error):
        return match.group(0)
    return '"' + raw.decode("utf-8", "replace").replace("\\", "\\\\").replace('"', '\\"') + '"'


def _general(language: str, text: str, label: str) -> list[Inner]:
    found: list[Inner] = []
    text = _HOME.sub('"@HOME@"', _DECODE.sub(_decoded, text))
    text = _CWD.sub('"."', _GETATTR.sub(r"\1", _JOINED.sub(_joined, text)))
    if language == "perl":
        text = _PERL_QUOTE.sub(_requoted, text)
    for _ in range(8):
        joined = _CONCAT.sub(r"\1\2\3\1", text)
        if joined == text:
            break
        text = joined
    values: dict[str, str] = dict(_ASSIGNED.findall(text)[:64])
    for name, value in values.items():
        if len(value) < 4096 and name not in ("mode", "encoding"):
            text = re.sub(rf"([(,\[]\s*)\$?{name}(?=\s*[),\].])", functools.partial(_put, value), text)
    for original, alias in _RENAMES.findall(text)[:16]:
        text = re.sub(rf"\b{alias}(?=\s*\()", original, text)
    for call, listed in _RUNS.findall(text)[:128]:
        found += _run(call, listed, label)
    for match in _EVALUATES.finditer(text):
        found += inner.code(literal(match.group(2)), language, label)
    if _FETCHES.search(text) and re.search(r"\b(exec|eval|instance_eval|assert|system|loadstring)\b", text):
        found += inner.script(DOWNLOAD, label)
    if _BOMB.search(text):
        found.append(Inner("bomb", text[:40], label))
    if _KILLS.search(text):
        found += inner.argv(["kill", "-9", "-1"], label)
    for call, operand in _REMOVES.findall(text)[:64]:
        recursive = call not in ("unlink", "unlinkSync", "remove", "rm", "rmdir", "delete")
        found += _file_command("rm -rf" if recursive else "rm -f", literal(operand), label)
    for operand, method in _PATH_METHOD.findall(text)[:64]:
        found += _path_method(literal(operand), method, label)
    for call, operand, mode in _OPENS.findall(text)[:64]:
        writes = (
            "rite" in call
            or "append" in call
            or "put" in call
            or bool(mode and re.search(r"[wa+>x]", literal(mode)[:3]))
        )
        path = literal(operand)
        if re.fullmatch(r"[+]?[<>]{1,2}(:\w+)?", path) and mode:
            path = path[:1] + literal(mode)
        if language in ("perl", "ruby") and (path[:1] == "|" or path[-1:] == "|"):
            found += inner.script(path.strip("|"), label)
            continue
        if path[:1] in "><|" and language == "perl":
            writes, path = path[0] == ">", path.lstrip("><| ")
        found += inner.argv(["tee" if writes else "cat", path], label, "")
    for operand, mode in _CHMOD.findall(text)[:64]:
        found += inner.argv(["chmod", mode, literal(operand)], label)
    if language in _LOCKED_BACKTICKS:
        for groups in _BACKTICKS.findall(text)[:64]:
            found += inner.script("".join(groups), label)
    return found


def _joined(match: re.Match[str]) -> str:
    return '"' + "".join(literal(one) for one in _STRINGS.findall(match.group(1))).replace('"', '\\"') + '"'


def _requoted(match: re.Match[str]) -> str:
    """Perl's `q(...)` with any delimiter as a string in double quotes."""
    text = next((group for group in (*match.groups()[:4], match.group(6)) if group is not None), "")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _put(value: str, match: re.Match[str]) -> str:
    return f"{match.group(1)}{value}"


def _file_command(command: str, path: str, label: str) -> list[Inner]:
    if "@HOME@" in path:
        return inner.script(f'{command} "{path.replace("@HOME@", "$HOME")}"', label)
    return inner.argv([*command.split(), path], label)


def _path_method(path: str, method: str, label: str) -> list[Inner]:
    if method in ("write_text", "write_bytes", "touch"):
        return inner.argv(["tee", path], label, "")
    if method in ("read_text", "read_bytes", "open"):
        return inner.argv(["cat", path], label)
    return inner.argv(["rm", "-f", path], label) if method in ("unlink", "rmdir") else []


def _run(call: str, listed: str, label: str) -> list[Inner]:
    strings = [literal(one) for one in _STRINGS.findall(listed)]
    if not strings:
        return []
    if listed[:1] in "[(" or len(strings) > 1:
        if call.startswith(("execl", "spawnl")) and len(strings) > 1:
            strings = [strings[0], *strings[2:]]
        if call in ("popen", "io.popen", "IO.popen", "proc_open") and len(strings) > 1 and len(strings[1]) <= 2:
            return inner.script(strings[0], label)
        return inner.argv(strings, label)
    return inner.script(strings[0], label)


def _tcl(text: str, label: str) -> list[Inner]:
    found: list[Inner] = []
    for match in re.finditer(r"(?:^|[;\n\[{])\s*(?:exec|spawn|system)\s+([^;\n\]}]+)", text):
        found += inner.script(match.group(1), label)
    return found + _general("tcl", text, label)


_LANGUAGES = {
    "awk": awk,
    "sed": sed,
    "vim": vim,
    "ed": bang_lines,
    "make": make,
    "emacs": emacs,
    "gnuplot": bang_lines,
    "bc": bang_lines,
    "dc": bang_lines,
    "sqlite": bang_lines,
    "lftp": bang_lines,
    "m4": bang_lines,
    "tcl": _tcl,
}

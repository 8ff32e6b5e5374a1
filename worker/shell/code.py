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
from worker.shell.marks import DOWNLOAD

_STRING = r"""[rRbBfFuU]{0,2}(?:'''(?:[^\\]|\\.)*?'''|\"\"\"(?:[^\\]|\\.)*?\"\"\"|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`)"""
_STRINGS = re.compile(_STRING, re.DOTALL)
_LIST = rf"[\[(]?\s*{_STRING}(?:\s*,\s*\[?\s*{_STRING})*"
_RUNS = re.compile(
    rf"\b(system|popen[234]?|Popen|exec[lv]?[pe]{{0,2}}|run|call|check_call|check_output|getoutput|getstatusoutput|"
    rf"spawn[lv]?p?e?|posix_spawnp?|spawnSync|execSync|execFile|execFileSync|shell_exec|passthru|proc_open|pcntl_exec|"
    rf"create_subprocess_shell|create_subprocess_exec|fork_exec|pty\.spawn|IO\.popen|io\.popen|os\.execute|execute|"
    rf"Open3\.\w+|sh|\$)\s*[( ]?\s*(?:os\.P_\w+\s*,\s*)?({_LIST})",
    re.DOTALL,
)  # fmt: skip
_REMOVES = re.compile(
    rf"\b(rmtree|rm_rf|rm_r|remove_tree|remove_entry_secure|rmSync|rmdirSync|rmdir|removedirs|unlink|unlinkSync|"
    rf"remove|rm|delete_tree|remove_entry|removeSync|emptyDirSync)\s*[( ]\s*(?:pathlib\.|Path\()?\(?\s*({_STRING})", re.DOTALL,
)  # fmt: skip
_PATH_METHOD = re.compile(rf"Path\(\s*({_STRING})\s*\)\.(\w+)\(", re.DOTALL)
_OPENS = re.compile(
    rf"\b(open|fopen|File\.(?:open|write|read|new)|readFileSync|writeFileSync|appendFileSync|readFile|writeFile|"
    rf"file_get_contents|file_put_contents|copyfile|copy|slurp)\s*[( ]\s*({_STRING})(?:\s*,\s*(?:mode\s*=\s*)?({_STRING}))?",
    re.DOTALL,
)  # fmt: skip
_CHMOD = re.compile(rf"\b(?:chmod|chmodSync)\s*\(\s*({_STRING})\s*,\s*(?:0o?)?(\d+)", re.DOTALL)
_BACKTICKS = re.compile(r"`([^`]+)`|\b(?:qx|%x)\s*[({\[/|!]([^)}\]/|!]+)|%x[({\[]([^)}\]]+)", re.DOTALL)
_CONCAT = re.compile(r"""(["'])((?:(?!\1)[^\\])*)\1\s*[+.]\s*\1((?:(?!\1)[^\\])*)\1""")
_DECODE = re.compile(
    r"""(?:base64\.|__import__\([\"']\w+[\"']\)\.)?(?:b64decode|standard_b64decode|decode_base64|base64_decode|Base64\.decode64|atob|unhexlify|"""
    r"""bytes\.fromhex|hex2bin)\s*\(\s*b?(["'])([A-Za-z0-9+/=_-]*)\1\s*\)(?:\.decode\([^)]*\))?"""
)
_ASSIGNED = re.compile(rf"(?:^|[;\n{{(,]|\b(?:let|const|var|my|local)\s)\s*[$@]?(\w+)\s*=\s*({_STRING}|\[[^\]]*\])")
_EVALUATES = re.compile(
    rf"\b(exec|eval|compile|instance_eval|assert|loadstring|load|Function)\s*\(?\s*({_STRING})", re.DOTALL
)
_FETCHES = re.compile(
    r"urlopen|urlretrieve|requests\.get|httpx\.get|LWP::|Net::HTTP|open-uri|fetch\(|https?\.get\(|file_get_contents\(\s*['\"]https?:"
)
_BOMB = re.compile(
    r"fork\s+while\s+fork|while\s*\(?\s*(?:True|1|true)?\s*\)?\s*[:{]?\s*(?:os\.|posix\.|Process\.)?fork|loop\s*(?:do|\{)\s*(?:Process\.)?fork|while\s*\(?\s*(?:os\.)?fork"
)
_KILLS = re.compile(r"\bkill(?:pg)?\s*[( ]\s*(?:(-1)\s*,|['\"]?(?:SIG)?(?:KILL|TERM|9|15)['\"]?\s*,\s*(-1))")
_LOCKED_BACKTICKS = frozenset({"perl", "ruby", "php"})
_ANY_HINT = re.compile(
    r"system|open|exec|run|call|check_|output|spawn|sh\b|passthru|rm|remove|unlink|rmdir|fork|kill|chmod|Path|read|write|"
    r"file_|copy|`|qx|%x|eval|compile|load|assert|Function|execute|\$"
)  # fmt: skip

INTERPRETERS: dict[str, tuple[str, str, str]] = {
    # name -> language, options that hold code, other options with a value
    "python": ("python", "c", "mWXQ"),
    "pypy": ("python", "c", "mWX"),
    "ipython": ("python", "c", "m"),
    "perl": ("perl", "eE", "IMmC"),
    "ruby": ("ruby", "e", "IrCEKTFx"),
    "node": ("node", "ep", "rC"),
    "nodejs": ("node", "ep", "rC"),
    "bun": ("node", "ep", "r"),
    "deno": ("node", "", ""),
    "php": ("php", "rBRE", "dczStFf"),
    "lua": ("lua", "e", "l"),
    "luajit": ("lua", "e", "lj"),
    "tclsh": ("tcl", "", ""),
    "guile": ("guile", "c", "Llsx"),
    "Rscript": ("r", "e", ""),
    "julia": ("julia", "eE", "LJCp"),
    "elixir": ("elixir", "e", "rS"),
    "groovy": ("groovy", "e", ""),
    "osascript": ("osascript", "e", "l"),
    "jshell": ("java", "", ""),
    "irb": ("ruby", "", "r"),
    "gjs": ("node", "c", "I"),
    "awk": ("awk", "e", "vFf"),
    "gawk": ("awk", "e", "vFf"),
    "mawk": ("awk", "e", "vFf"),
    "nawk": ("awk", "e", "vFf"),
    "sed": ("sed", "ef", "fl"),
    "gsed": ("sed", "e", "fl"),
    "ed": ("ed", "", "p"),
    "ex": ("vim", "c", "sSTtuUwWi"),
    "vi": ("vim", "c", "sSTtuUwWi"),
    "vim": ("vim", "c", "sSTtuUwWi"),
    "nvim": ("vim", "cl", "sSTtuUwWi"),
    "view": ("vim", "c", "sSTtuUwWi"),
    "vimdiff": ("vim", "c", "sSTtuUwWi"),
    "rvim": ("vim", "c", "sSTtuUwWi"),
    "emacs": ("emacs", "", ""),
    "gnuplot": ("gnuplot", "e", ""),
    "octave": ("octave", "", ""),
    "expect": ("tcl", "c", ""),
    "bc": ("bc", "", ""),
    "dc": ("dc", "e", "f"),
    "sqlite3": ("sqlite", "", ""),
    "lftp": ("lftp", "ec", "u"),
    "ftp": ("lftp", "", ""),
    "jrunscript": ("node", "e", "lf"),
    "m4": ("m4", "", "DIU"),
    "scala": ("java", "e", ""),
}
LONG_CODE = {"eval": "", "execute": "", "print": "", "expression": "", "cmd": "", "eval-string": "", "source": ""}


def literal(token: str) -> str:
    """The text a string literal stands for."""
    body = token.lstrip("rRbBfFuU")
    quote = body[:3] if body[:3] in ("'''", '"""') else body[:1]
    text = body[len(quote) : -len(quote)]
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m.group(1), m.group(1)), text, flags=re.DOTALL)


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
    text = _DECODE.sub(_decoded, text)
    for _ in range(8):
        joined = _CONCAT.sub(r"\1\2\3\1", text)
        if joined == text:
            break
        text = joined
    values: dict[str, str] = dict(_ASSIGNED.findall(text)[:64])
    for name, value in values.items():
        if len(value) < 4096 and name not in ("mode", "encoding"):
            text = re.sub(rf"([(,\[]\s*)\$?{name}(?=\s*[),\].])", functools.partial(_put, value), text)
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
        recursive = call not in ("unlink", "unlinkSync", "remove", "rm", "rmdir")
        found += inner.argv(["rm", "-rf" if recursive else "-f", literal(operand)], label)
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
        if path[:1] in "><|" and language == "perl":
            writes, path = path[0] == ">", path.lstrip("><| ")
        found += inner.argv(["tee" if writes else "cat", path], label, "")
    for operand, mode in _CHMOD.findall(text)[:64]:
        found += inner.argv(["chmod", mode, literal(operand)], label)
    if language in _LOCKED_BACKTICKS:
        for groups in _BACKTICKS.findall(text)[:64]:
            found += inner.script("".join(groups), label)
    return found


def _put(value: str, match: re.Match[str]) -> str:
    return f"{match.group(1)}{value}"


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


_AWK_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_AWK_RUNS = re.compile(
    r"system\s*\(\s*((?:@\d+@\s*)+)|((?:@\d+@\s*)+)\|&?\s*getline|(?<!\|)\|(?!\|)&?\s*((?:@\d+@\s*)+)"
)
_AWK_WRITES = re.compile(r">>?\s*(@\d+@)")
_AWK_ASSIGNS = re.compile(r"(\w+)\s*=\s*((?:@\d+@\s*)+)")


def _awk(text: str, label: str) -> list[Inner]:
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


def _sed(text: str, label: str) -> list[Inner]:
    found: list[Inner] = []
    for match in _SED_E.finditer(text):
        found += inner.script(match.group(1) or "", label)
    for match in _SED_S.finditer(text):
        found += inner.script(re.sub(r"\\(.)", r"\1", match.group(3)), label)
    for match in _SED_W.finditer(text):
        found += inner.argv(["tee", match.group(1).strip()], label, "")
    return found


def _vim(text: str, label: str) -> list[Inner]:
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
        rf"\b(?:system|systemlist|termopen|jobstart|job_start|os\.execute)\s*\(\s*({_STRING})", text
    ):
        found += inner.script(literal(match.group(1)), label)
    return found


def _make(text: str, label: str) -> list[Inner]:
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


def _emacs(text: str, label: str) -> list[Inner]:
    found: list[Inner] = []
    for match in re.finditer(
        r'\(\s*(?:shell-command(?:-to-string)?|call-process-shell-command|async-shell-command|compile|term|ansi-term)\s+"((?:[^"\\]|\\.)*)"',
        text,
    ):
        found += inner.script(literal('"' + match.group(1) + '"'), label)
    for match in re.finditer(r'\(\s*(?:delete-directory|delete-file)\s+"((?:[^"\\]|\\.)*)"', text):
        found += inner.argv(["rm", "-rf", match.group(1)], label)
    return found


def _bang_lines(text: str, label: str) -> list[Inner]:
    found: list[Inner] = []
    for match in re.finditer(r"(?:^|[\n;])\s*(?:!|\.shell\s|\.system\s|shell\s|sh\s)\s*([^\n]*)", text):
        found += inner.script(match.group(1).strip().strip("'\""), label)
    for match in re.finditer(rf"\b(?:system|exec|esyscmd|syscmd|unix)\s*\(?\s*({_STRING}|`[^']*')", text):
        found += inner.script(literal(match.group(1)), label)
    return found


def _tcl(text: str, label: str) -> list[Inner]:
    found: list[Inner] = []
    for match in re.finditer(r"(?:^|[;\n\[{])\s*(?:exec|spawn|system)\s+([^;\n\]}]+)", text):
        found += inner.script(match.group(1), label)
    return found + _general("tcl", text, label)


_LANGUAGES = {
    "awk": _awk,
    "sed": _sed,
    "vim": _vim,
    "ed": _bang_lines,
    "make": _make,
    "emacs": _emacs,
    "gnuplot": _bang_lines,
    "bc": _bang_lines,
    "dc": _bang_lines,
    "sqlite": _bang_lines,
    "lftp": _bang_lines,
    "m4": _bang_lines,
    "tcl": _tcl,
}

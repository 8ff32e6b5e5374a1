"""What `git` runs: aliases, configuration values, options, subcommands."""

from __future__ import annotations

import re

from worker.shell import inner
from worker.shell.inner import Inner
from worker.shell.options import parse
from worker.shell.state import Call

_GIT_CONFIG = re.compile(
    r"(core\.(fsmonitor|pager|sshcommand|editor|askpass|gitproxy|hookspath|alternaterefscommand)|"
    r"sequence\.editor|credential(\..*)?\.helper|gpg(\..*)?\.program|pager\..*|diff\.external|diff\..*\.(command|textconv)|"
    r"difftool\..*\.cmd|mergetool\..*\.cmd|merge\..*\.driver|filter\..*\.(clean|smudge|process)|man\..*\.cmd|"
    r"browser\..*\.(cmd|path)|web\.browser|uploadpack\.packobjectshook|remote\..*\.(uploadpack|receivepack|vcs)|"
    r"sendemail\..*cmd|interactive\.difffilter|tar\..*\.command|trailer\..*\.(command|cmd)|submodule\..*\.update|init\.templatedir|"
    r"instaweb\.httpd|transfer\.credentialsinurl|protocol\.ext\.allow)",
    re.I | re.S,
)


_GIT_SUB_VALUES = (
    "upload-pack", "receive-pack", "exec", "tool", "extcmd", "open-files-in-pager", "smtp-server", "tree-filter",
    "index-filter", "msg-filter", "env-filter", "commit-filter", "parent-filter", "tag-name-filter", "editor", "config",
    "sendmail-cmd", "to-cmd", "cc-cmd", "header-cmd", "filter", "template", "message", "author", "format", "grep",
    "pretty", "upload-archive",
)  # fmt: skip


_GIT_RUN = frozenset(_GIT_SUB_VALUES[:4]) | frozenset(_GIT_SUB_VALUES[4:14]) | {
    "editor", "sendmail-cmd", "to-cmd", "cc-cmd", "header-cmd",
}  # fmt: skip


def git(call: Call) -> list[Inner]:
    """`git`: configuration values, aliases and options that git runs."""
    parsed = parse(
        call.argv[1:], "cC", ("git-dir", "work-tree", "namespace", "exec-path", "config-env", "super-prefix"),
        ("paginate", "no-pager", "bare", "literal-pathspecs"), permute=False,
    )  # fmt: skip
    found: list[Inner] = []
    for value in parsed.values("c"):
        name, _, text = value.partition("=")
        found += _git_config(name, text)
    rest = parsed.operands
    if not rest:
        return found
    command, arguments = rest[0], rest[1:]
    sub = parse(arguments, "xcCum", _GIT_SUB_VALUES, ("verify", "update", "quiet", "force", "all"))
    for name in _GIT_RUN & {option for option, _ in sub.options}:
        for text in sub.values(name):
            if name != "tool":
                found += inner.script(text, f"git {command} --{name}")
    if command == "clone" or command == "submodule":
        for value in sub.values("c", "config"):
            found += _git_config(*value.partition("=")[::2])
        for value in sub.values("u") if command == "clone" else []:
            found += inner.script(value, "git clone -u")
    found += _git_subcommand(command, arguments, sub.values("x"))
    for operand in arguments:
        if operand.startswith("ext::"):
            found += inner.script(re.sub(r"%(.)", r"\1", operand[5:]), "git ext::")
    return found


def _git_subcommand(command: str, arguments: list[str], executed: list[str]) -> list[Inner]:
    found: list[Inner] = []
    if command in ("rebase", "difftool") and executed:
        for text in executed:
            found += inner.script(text, f"git {command} -x")
    elif command == "config":
        parsed = parse(arguments, "ft", ("file", "blob", "type", "default", "comment"), ("global", "local", "add"))
        words = [word for word in parsed.operands if word != "set"]
        if len(words) >= 2:
            found += _git_config(words[0], words[1])
    elif command == "bisect" and arguments[:1] == ["run"]:
        found += inner.argv(arguments[1:], "git bisect run")
    elif command == "submodule" and "foreach" in arguments:
        rest = [word for word in arguments[arguments.index("foreach") + 1 :] if word not in ("--recursive", "--quiet")]
        found += inner.script(" ".join(rest), "git submodule foreach")
    elif command == "grep":
        for word in arguments:
            if word.startswith("-O") and len(word) > 2:
                found += inner.script(word[2:], "git grep -O")
    elif command == "filter-branch":
        parsed = parse(arguments, "", _GIT_SUB_VALUES)
        for _, text in parsed.options:
            found += inner.script(text, "git filter-branch")
    elif command == "for-each-repo":
        found += inner.argv(["git", *[word for word in arguments if not word.startswith("--")]], "git for-each-repo")
    return found


def _git_config(name: str, text: str) -> list[Inner]:
    if name.lower().startswith("alias."):
        if text.startswith("!"):
            return inner.script(text[1:], "git alias")
        return inner.script(f"git {text}", "git alias") if text else []
    if _GIT_CONFIG.fullmatch(name) and text.lower() not in ("true", "false", ""):
        return inner.script(text.removeprefix("!"), f"git config {name}")
    return []

"""Variables whose value a program runs, or reads as options or a start-up file."""

from __future__ import annotations

import re

from worker.shell import inner
from worker.shell.inner import Inner

_RUNS = frozenset({
    "GIT_SSH_COMMAND", "GIT_SSH", "GIT_PAGER", "PAGER", "GIT_EXTERNAL_DIFF", "EDITOR", "VISUAL", "GIT_EDITOR",
    "GIT_SEQUENCE_EDITOR", "PROMPT_COMMAND", "LESSOPEN", "LESSCLOSE", "MANPAGER", "BROWSER", "GIT_ASKPASS",
    "SSH_ASKPASS", "SUDO_ASKPASS", "GIT_PROXY_COMMAND", "RSYNC_RSH", "CVS_RSH", "FZF_DEFAULT_COMMAND",
    "FZF_CTRL_T_COMMAND", "SYSTEMD_EDITOR", "SYSTEMD_PAGER", "SYSTEMD_LESS", "BAT_PAGER", "DELTA_PAGER",
    "AWS_PAGER", "PSQL_PAGER", "PSQL_EDITOR", "MYSQL_PAGER", "FCEDIT", "HGEDITOR", "SVN_EDITOR", "SVN_SSH",
    "BZR_EDITOR", "KUBE_EDITOR", "CARGO_BUILD_RUSTC_WRAPPER", "RUSTC_WRAPPER", "RUSTC", "HOMEBREW_EDITOR",
})  # fmt: skip
_FILES = frozenset({"BASH_ENV", "ENV", "ZDOTDIR", "PYTHONSTARTUP"})
_PROMPTS = frozenset({"PS0", "PS1", "PS2", "PS4"})
_CONFIG_VALUE = re.compile(r"GIT_CONFIG_VALUE_\d+")


def consequences(name: str, value: str) -> list[Inner]:
    """What setting the variable makes other programs run."""
    label = f"{name}="
    if name in _RUNS or _CONFIG_VALUE.fullmatch(name):
        return inner.script(value.lstrip("|!"), label)
    if name in _FILES:
        return inner.file(value, "sh", label) if name != "PYTHONSTARTUP" else inner.file(value, "python", label)
    if name in _PROMPTS:
        return [Inner("prompt", value, label)]
    if name == "TAR_OPTIONS":
        return inner.script(f"tar {value}", label)
    if name == "MAKEFLAGS":
        return inner.script(f"make {value}", label)
    return []


def is_followed(name: str) -> bool:
    """Whether the variable is one of these; quick, since every assignment asks."""
    return name.isupper() and (
        name in _RUNS
        or name in _FILES
        or name in _PROMPTS
        or name in ("TAR_OPTIONS", "MAKEFLAGS")
        or name[:4] == "GIT_"
    )

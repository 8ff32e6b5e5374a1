"""Which launcher serves which command."""

from __future__ import annotations

from typing import cast

from worker.shell import git, inner, launchers, shells
from worker.shell.inner import Inner
from worker.shell.launchers import Launcher, option_runs
from worker.shell.state import Call


def _pipe_into(call: Call) -> list[Inner]:
    """`at`, `batch`: their input is a script."""
    return inner.script(call.stdin or "", call.argv[0])


def _rg(call: Call) -> list[Inner]:
    return option_runs("rg --pre", "", ("pre", "hostname-bin"), values="efgtTABCmMjr", others=("regexp", "glob"))(call)


def _split(call: Call) -> list[Inner]:
    return option_runs("split --filter", "", ("filter",), values="abClnt", others=("bytes", "lines", "number"))(call)


LAUNCHERS: dict[str, Launcher] = {
    "find": launchers.find,
    "gfind": launchers.find,
    "fd": launchers.fd,
    "fdfind": launchers.fd,
    "tar": launchers.tar,
    "gtar": launchers.tar,
    "bsdtar": launchers.tar,
    "git": git.git,
    "man": launchers.man,
    "rsync": launchers.rsync,
    "zip": launchers.zip_,
    "make": launchers.make,
    "gmake": launchers.make,
    "remake": launchers.make,
    "ssh": shells.ssh,
    "autossh": shells.ssh,
    "scp": launchers.ssh_like,
    "sftp": launchers.ssh_like,
    "sshfs": launchers.ssh_like,
    "tmux": launchers.tmux,
    "screen": launchers.screen,
    "nix-shell": launchers.nix_shell,
    "nix": launchers.nix_shell,
    "cpio": launchers.cpio_like,
    "eval": shells.evaluated,
    "trap": shells.trapped,
    "source": shells.sourced,
    ".": shells.sourced,
    "mapfile": shells.callback,
    "readarray": shells.callback,
    "complete": shells.callback,
    "compgen": shells.callback,
    "bind": shells.callback,
    "at": _pipe_into,
    "batch": _pipe_into,
    "rg": _rg,
    "less": launchers.plus_bang,
    "more": launchers.plus_bang,
    "most": launchers.plus_bang,
    "nano": option_runs("nano -s", "s", ("speller",), values="oQrTwY"),
    "pico": option_runs("nano -s", "s", ("speller",)),
    "split": _split,
    "sort": option_runs("sort --compress-program", "", ("compress-program",), values="kotSTj",
                        others=("key", "output", "field-separator", "buffer-size", "temporary-directory", "parallel")),
    "hyperfine": cast(Launcher, shells.each("wmMrpScLPDinu", ("warmup", "runs", "prepare", "setup", "shell"))),
    "watchexec": cast(Launcher, shells.joined("ewifsdW", ("exts", "watch", "ignore", "filter"))),
    "nodemon": option_runs("nodemon --exec", "x", ("exec",)),
    "concurrently": cast(Launcher, shells.each("nckp", ("names",))),
    "tcpdump": option_runs("tcpdump -z", "z", (), values="iwrcsCWGFBTyE", argv_only=True),
    "dpkg": option_runs("dpkg --pre-invoke", "", ("pre-invoke", "post-invoke")),
    "pip": option_runs("pip --editor", "", ("editor",)),
    "wget": option_runs("wget --use-askpass", "", ("use-askpass",), argv_only=True),
    "logsave": cast(Launcher, lambda call: inner.argv(call.argv[2:], "logsave")),
    "ip": cast(Launcher, lambda call: inner.argv(call.argv[4:], "ip netns exec") if call.argv[1:3] == ("netns", "exec")
               else []),
    "rsh": shells.ssh,
    "socat": cast(Launcher, lambda call: [one for word in call.argv[1:] for one in _socat(word)]),
    "nc": option_runs("nc -e", "ec", ("exec", "sh-exec"), values="ipswqXxGgIOTVW"),
    "ncat": option_runs("ncat -e", "ec", ("exec", "sh-exec"), values="ipswqXxGgIOTVW"),
    "netcat": option_runs("nc -e", "ec", ("exec", "sh-exec"), values="ipswqXxGgIOTVW"),
    "capsh": cast(Launcher, lambda call: _capsh(call)),
    "sg": cast(Launcher, lambda call: inner.script(call.argv[-1], "sg -c") if len(call.argv) > 2 else []),
    "psql": cast(Launcher, lambda call: _backslash_bang(call, "psql")),
    "mysql": cast(Launcher, lambda call: _backslash_bang(call, "mysql")),
}  # fmt: skip


def _socat(word: str) -> list[Inner]:
    kind, _, text = word.partition(":")
    return inner.script(text.partition(",")[0], "socat") if kind.upper() in ("EXEC", "SYSTEM", "SHELL") else []


def _capsh(call: Call) -> list[Inner]:
    for at, word in enumerate(call.argv):
        if word in ("--", "=="):
            return shells.shell("capsh", Call(("bash", *call.argv[at + 1 :]), call.cwd, call.trail, stdin=call.stdin))
    return []


def _backslash_bang(call: Call, name: str) -> list[Inner]:
    found: list[Inner] = []
    for word in call.argv[1:]:
        at = word.find("\\!")
        if at >= 0:
            found += inner.script(word[at + 2 :], f"{name} \\!")
    return found

"""Programs that run others through an option or an operand of theirs (most of GTFOBins' kinds)."""

from __future__ import annotations

import re
from collections.abc import Callable

from worker.shell import inner, shells
from worker.shell.inner import Inner
from worker.shell.marks import LISTED
from worker.shell.options import parse
from worker.shell.state import Call

Launcher = Callable[[Call], list[Inner]]


def find(call: Call) -> list[Inner]:
    """`find -exec` and kin; `{}` stands for whatever lies beneath the starting points."""
    roots = find_roots(call.argv)
    found: list[Inner] = []
    arguments = call.argv
    at = 0
    while at < len(arguments):
        if arguments[at] in ("-exec", "-execdir", "-ok", "-okdir"):
            label = f"find {arguments[at]}"
            command: list[str] = []
            at += 1
            while at < len(arguments) and arguments[at] != ";":
                if arguments[at] == "+" and command and command[-1] == "{}":
                    break
                command.append(arguments[at])
                at += 1
            found += [one for path in found_paths(call.argv, roots) for one in _exec(command, path, label)]
        at += 1
    return found


def _exec(command: list[str], path: str, label: str) -> list[Inner]:
    return inner.argv([word.replace("{}", path) for word in command], label)


def find_roots(argv: tuple[str, ...]) -> list[str]:
    """Where a `find` starts."""
    roots: list[str] = []
    at = 1
    while (at < len(argv) and argv[at] in ("-H", "-L", "-P", "-D")) or (at < len(argv) and argv[at].startswith("-O")):
        at += 2 if argv[at] == "-D" else 1
    for word in argv[at:]:
        if word.startswith("-") or word in ("(", "!", ")", ","):
            break
        roots.append(word)
    return roots or ["."]


_NARROW = re.compile(
    r"-(i?name|xtype|i?path|i?regex|i?lname|wholename|empty|[acm](time|min)|a?newer|size|user|group|perm|inum|links|"
    r"samefile|nouser|nogroup|used|executable|newer..)"
)


def is_narrow(argv: tuple[str, ...]) -> bool:
    """Whether a `find` picks some of what it sees, rather than all of it."""
    for at, word in enumerate(argv):
        if _NARROW.fullmatch(word) and argv[at - 1] not in ("!", "-not"):
            pattern = argv[at + 1] if at + 1 < len(argv) else ""
            if not re.fullmatch(r"[*/.\ue005]*", pattern):
                return True
    return False


def found_paths(argv: tuple[str, ...], roots: list[str]) -> list[str]:
    if is_narrow(argv):
        return [f"/{LISTED}" if root.strip("/") == "" else f"{root.rstrip('/')}/some{LISTED}" for root in roots]
    return [path for root in roots for path in (root, f"{root.rstrip('/')}/{LISTED}")]


def fd(call: Call) -> list[Inner]:
    """`fd -x` and `-X`."""
    found: list[Inner] = []
    for at, word in enumerate(call.argv):
        if word in ("-x", "-X", "--exec", "--exec-batch"):
            operands = parse(
                call.argv[1:at], "eEdtSogj", ("extension", "exclude", "max-depth", "type", "size")
            ).operands
            narrow = any(part in ("-e", "--extension", "-S", "--size") for part in call.argv[1:at]) or (
                operands[:1] not in ([], ["."], [""])
            )
            for root in operands[1:] or ["."]:
                path = f"{root.rstrip('/')}/{'some' if narrow and root != '/' else ''}{LISTED}"
                command = [part.replace("{}", path) for part in call.argv[at + 1 :]]
                found += inner.argv(command if "{}" in call.argv[at + 1 :] else [*command, path], f"fd {word}")
            break
        if word.startswith(("--exec=", "--exec-batch=")):
            found += inner.script(word.partition("=")[2], "fd --exec")
    return found


_TAR_LONG = (
    "checkpoint-action", "to-command", "use-compress-program", "info-script", "new-volume-script", "rsh-command",
    "rmt-command", "file", "directory", "exclude", "transform", "files-from", "exclude-from", "owner", "group",
)  # fmt: skip


def tar(call: Call) -> list[Inner]:
    """`tar`'s many ways to run something."""
    arguments = list(call.argv[1:])
    if arguments and re.fullmatch(r"[A-Za-z]+", arguments[0]):
        bundle = arguments.pop(0)
        if "I" in bundle and len(arguments) > sum(letter in "fbC" for letter in bundle):
            arguments.insert(0, "-I" + arguments.pop(sum(letter in "fb" for letter in bundle[: bundle.index("I")])))
    parsed = parse(arguments, "fCIFbgKLNTVXH", _TAR_LONG, ("checkpoint", "create", "extract", "list", "to-stdout"))
    found: list[Inner] = []
    for value in parsed.values("checkpoint-action"):
        if value.startswith("exec="):
            found += inner.script(value[5:], "tar --checkpoint-action")
    for value in parsed.values(
        "to-command", "use-compress-program", "I", "info-script", "new-volume-script", "F", "rsh-command"
    ):
        found += inner.script(value, "tar's command option")
    return found


def option_runs(
    label: str, short: str = "", long: tuple[str, ...] = (), *, values: str = "", others: tuple[str, ...] = (),
    argv_only: bool = False,
) -> Launcher:  # fmt: skip
    """A launcher whose named options hold a command."""

    def take(call: Call) -> list[Inner]:
        parsed = parse(call.argv[1:], short + values, long + others)
        found: list[Inner] = []
        for text in parsed.values(*short, *long):
            found += inner.script(text, label) if not argv_only else inner.argv([text], label)
        return found

    return take


def plus_bang(call: Call) -> list[Inner]:
    """`less '+!text'`, `nano -s text`."""
    found: list[Inner] = []
    for word in call.argv[1:]:
        if word.startswith(("+!", "++!")):
            found += inner.script(word.lstrip("+!"), f"{call.argv[0]} +!")
    return found


def man(call: Call) -> list[Inner]:
    """`man`: pager, browser, preprocessor."""
    parsed = parse(call.argv[1:], "PHCMmSseErLRp", ("pager", "html", "config-file", "preprocessor", "extension"))
    found: list[Inner] = []
    for text in parsed.values("P", "pager", "H", "html"):
        found += inner.script(text, "man's pager or browser")
    return found


def rsync(call: Call) -> list[Inner]:
    """`rsync -e` and `--rsync-path`."""
    parsed = parse(call.argv[1:], "efTMB", ("rsh", "rsync-path", "exclude", "include", "filter", "files-from"))
    found: list[Inner] = []
    for text in parsed.values("e", "rsh", "rsync-path"):
        found += inner.script(text, "rsync -e")
    return found


def zip_(call: Call) -> list[Inner]:
    """`zip -TT`."""
    found: list[Inner] = []
    for at, word in enumerate(call.argv):
        if word.startswith(("-TT", "--unzip-command")):
            text = word.partition("=")[2] if "=" in word else word[3:] if word.startswith("-TT") else ""
            if not text and at + 1 < len(call.argv):
                text = call.argv[at + 1]
            found += inner.script(text, "zip -TT")
    return found


def make(call: Call) -> list[Inner]:
    """`make`: recipes of a makefile given on the line or written by it, `--eval`, `SHELL=`."""
    parsed = parse(
        call.argv[1:], "fCjIloWE", ("file", "makefile", "directory", "eval", "include-dir", "jobs", "load-average"),
        ("keep-going", "silent", "dry-run", "touch", "question", "always-make"),
    )  # fmt: skip
    found: list[Inner] = []
    for text in parsed.values("E", "eval"):
        found += inner.code(text, "make", "make --eval")
    files = parsed.values("f", "file", "makefile")
    for path in files or ["Makefile", "makefile", "GNUmakefile"]:
        if path == "-" and call.stdin is not None:
            found += inner.code(call.stdin, "make", "make -f -")
        elif path != "-":
            found += inner.file(path, "make", "make")
    for operand in parsed.operands:
        name, equals, value = operand.partition("=")
        if equals and name in ("SHELL", "MAKE", "CC", "CXX", ".SHELLFLAGS"):
            found += inner.script(value, f"make {name}=")
        elif equals:
            found += inner.code(f"{name}={value}", "make", "make")
    return found


def ssh_like(call: Call) -> list[Inner]:
    """`scp`, `sftp`, `sshfs`: options of ssh, and the program that stands in for it."""
    parsed = parse(call.argv[1:], "cDFiJloPSXRBbs")
    found: list[Inner] = []
    for value in parsed.values("o"):
        found += shells.ssh_option(value)
    for value in parsed.values("S"):
        found += inner.script(value, "scp -S")
    return found


def tmux(call: Call) -> list[Inner]:
    """`tmux new-session 'text'` and its other commands that take text."""
    parsed = parse(call.argv[1:], "cfLST", permute=False)
    found: list[Inner] = []
    for text in parsed.values("c"):
        found += inner.script(text, "tmux -c")
    for at, word in enumerate(parsed.operands):
        if word in ("new", "new-session", "neww", "new-window", "splitw", "split-window", "run", "run-shell",
                    "respawnp", "respawn-pane", "if", "if-shell", "popup", "display-popup", "pipe-pane"):  # fmt: skip
            rest = parse(parsed.operands[at + 1 :], "censtxyFlpP", permute=False).operands
            found += inner.script(" ".join(rest), f"tmux {word}")
        elif word in ("send", "send-keys"):
            rest = parse(parsed.operands[at + 1 :], "tN", permute=False).operands
            text = " ".join(part for part in rest if part not in ("Enter", "C-m", "KPEnter"))
            found += inner.script(text, "tmux send-keys")
            break
    return found


def screen(call: Call) -> list[Inner]:
    """`screen -dmS name command`, `screen -X stuff`."""
    parsed = parse(call.argv[1:], "ceShpstT", permute=False)
    if parsed.has("X") and parsed.operands[:1] in (["stuff"], ["exec"]):
        return inner.script(parsed.operands[-1], "screen -X")
    return inner.argv(parsed.operands, "screen")


def nix_shell(call: Call) -> list[Inner]:
    """`nix-shell --run`, `nix develop -c`."""
    found: list[Inner] = []
    for at, word in enumerate(call.argv):
        if word in ("--run", "--command") and at + 1 < len(call.argv) and call.argv[0].endswith("shell"):
            found += inner.script(call.argv[at + 1], "nix-shell --run")
        elif word in ("-c", "--command"):
            found += inner.argv(call.argv[at + 1 :], "nix -c")
            break
    return found


def cpio_like(call: Call) -> list[Inner]:
    """Programs whose `--rsh-command` runs."""
    return option_runs(call.argv[0], "", ("rsh-command",))(call)

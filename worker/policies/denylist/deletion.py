"""Deleting, emptying or moving away what must stay."""

from __future__ import annotations

import re

from worker.policies.denylist.match import Match
from worker.policies.denylist.place import Place
from worker.shell import written
from worker.shell.launchers import find_roots, is_narrow
from worker.shell.marks import LISTED, UNSET
from worker.shell.options import parse
from worker.shell.state import Call

_RM = ("force", "interactive", "one-file-system", "no-preserve-root", "preserve-root", "recursive", "dir", "verbose")
_OVERWRITE = frozenset({"shred", "srm", "wipe", "scrub", "truncate", "sfill", "nwipe", "bleachbit"})


def judge(name: str, call: Call, place: Place) -> Match | None:
    """Deletion of the root, system directories, home, the workspace and its parents."""
    if name in (
        "rm",
        "grm",
        "rmdir",
        "unlink",
        "trash",
        "trash-put",
        "rimraf",
        "del-cli",
        "gio",
        "safe-rm",
        "trash-rm",
    ):
        return _remove(name, call, place)
    if name in ("find", "gfind"):
        return _find(call, place)
    if name in _OVERWRITE:
        return _overwrite(name, call, place)
    if name in ("mv", "gmv"):
        return _move(call, place)
    if name == "rsync":
        return _mirror(call, place)
    if name == "git" and "clean" in call.argv:
        return None
    return _replace(name, call, place)


def _remove(name: str, call: Call, place: Place) -> Match | None:
    parsed = parse(call.argv[1:], "", (), _RM)
    if parsed.has("help", "version"):
        return None
    recursive = parsed.has("r", "R", "recursive", "d", "dir") or name not in ("rm", "grm", "unlink", "rmdir")
    for operand in parsed.operands:
        lost = place.destroyed(call.cwd, operand, recursive=recursive or LISTED in operand)
        if lost:
            return Match("deletion", f"it would delete {lost}")
    if parsed.has("no-preserve-root"):
        return Match("deletion", "it asks not to spare the root directory")
    return None


def _find(call: Call, place: Place) -> Match | None:
    if "-delete" not in call.argv:
        return None
    narrow = is_narrow(call.argv)
    for root in find_roots(call.argv):
        path = place.resolve(call.cwd, root)
        kept = place.is_protected(path) if path is not None else None
        kept = kept or (place.destroyed(call.cwd, root, recursive=True) if path is not None else None)
        if path is None or kept is None or path == "/tmp":  # noqa: S108
            continue
        if not narrow or ("workspace itself" not in kept and path != place.home and not path.startswith("/var/")):
            return Match("deletion", f"it would delete {'files all over' if narrow else 'all that is in'} {kept}")
    return None


def _overwrite(name: str, call: Call, place: Place) -> Match | None:
    parsed = parse(call.argv[1:], "nsrof", ("iterations", "size", "random-source", "reference"), ("remove", "zero"))
    if name == "wipe" and not parsed.has("r", "R", "q", "f"):
        return None
    for operand in parsed.operands:
        lost = place.destroyed(call.cwd, operand, recursive=True)
        if lost:
            return Match("deletion", f"it would destroy {lost}")
    return None


def _move(call: Call, place: Place) -> Match | None:
    parsed = parse(call.argv[1:], "tS", ("target-directory", "suffix"), ("force", "no-clobber", "verbose"))
    sources = parsed.operands if parsed.has("t", "target-directory") else parsed.operands[:-1]
    for operand in sources:
        path = place.resolve(call.cwd, operand)
        lost = place.destroyed(call.cwd, operand, recursive=True)
        if (
            lost
            and path is not None
            and not (lost.startswith("all that is in the workspace") and _stays(parsed.operands[-1], call, place))
        ):
            return Match("deletion", f"it would move away {lost}")
    return _replace("mv", call, place)


def _stays(target: str, call: Call, place: Place) -> bool:
    path = place.resolve(call.cwd, target)
    return path is not None and path != "/dev/null"


def _mirror(call: Call, place: Place) -> Match | None:
    if not any(word.startswith(("--del", "--remove-source")) for word in call.argv):
        return None
    parsed = parse(call.argv[1:], "efTMB", ("rsh", "exclude", "include", "filter", "files-from"))
    target = parsed.operands[-1] if parsed.operands else ""
    lost = place.destroyed(call.cwd, target, recursive=True) if target and ":" not in target else None
    return Match("deletion", f"it would empty {lost}") if lost and len(parsed.operands) > 1 else None


def _replace(name: str, call: Call, place: Place) -> Match | None:
    """Files of the system written over by a command's own operands."""
    targets = written.targets(name, call)
    if name == "tar" and re.match(r"-*[a-z]*x|--extract|--get", "".join(call.argv[1:2])):
        targets = parse(call.argv[1:], "Cf", ("directory", "file")).values("C", "directory")
    for target in targets:
        path = place.resolve(call.cwd, target)
        if path is None or UNSET in target:
            continue
        if name in ("tar",) and path == "/":
            return Match("system_files", "it would unpack over the root directory")
        kept = _system_file(path)
        if kept:
            return Match("system_files", f"it would write to {kept}")
    return None


_WRITE_TREES = (
    "/bin/", "/sbin/", "/lib/", "/lib64/", "/boot/", "/etc/", "/usr/bin/", "/usr/sbin/", "/usr/lib/", "/sys/",
    "/proc/sys/", "/usr/lib64/", "/usr/libexec/", "/root/.ssh", "/var/spool/cron/", "/usr/share/polkit",
)  # fmt: skip


def _system_file(path: str) -> str | None:
    if path.startswith(_WRITE_TREES) or path in ("/etc", "/boot", "/bin", "/sbin", "/usr/bin", "/usr/sbin", "/lib"):
        return path
    return None


def redirect(op: str, target: str, call: Call, place: Place) -> Match | None:
    """A redirection that writes over a file of the system."""
    path = place.resolve(call.cwd, target)
    kept = _system_file(path) if path is not None and UNSET not in target else None
    return Match("system_files", f"it would write to {kept}") if kept else None

"""Where a command runs, and what its path operands mean there."""

from __future__ import annotations

import re
from typing import NamedTuple

from worker.shell import marks
from worker.shell.marks import ANY, BRACKET, LISTED, SELF, STAR, UNKNOWN, UNSET
from worker.shell.paths import components, contains, join

SYSTEM_TREES = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot", "/etc", "/proc", "/sys", "/dev",
                "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/var/lib/dpkg",
                "/var/lib/rpm", "/var/lib/docker", "/var/lib/mysql", "/var/lib/postgresql", "/var/lib/systemd",
                "/var/spool/cron", "/usr/local/bin", "/usr/local/sbin", "/usr/local/lib", "/snap", "/nix/store",
                "/System", "/Library", "/Applications")  # fmt: skip
"""Nothing beneath these may be destroyed."""
SYSTEM_DIRECTORIES = frozenset(SYSTEM_TREES) | frozenset(
    [
        "/",
        "/usr",
        "/var",
        "/opt",
        "/home",
        "/root",
        "/srv",
        "/run",
        "/mnt",
        "/media",
        "/tmp",  # noqa: S108
        "/var/lib",
        "/var/log",
        "/var/cache",
        "/var/tmp",  # noqa: S108
        "/var/spool",
        "/var/www",
        "/var/run",
        "/usr/share",
        "/usr/local",
        "/usr/include",
        "/usr/src",
        "/usr/local/share",
        "/usr/local/include",
        "/usr/local/etc",
        "/Users",
        "/var/mail",
        "/var/backups",
        "/usr/games",
        "/lost+found",
        "/nix",
        "/data",
    ]
)
"""These themselves, or all that is in them, may not be destroyed."""
_FREE = (
    "/dev/shm", "/dev/null", "/dev/fd", "/dev/mqueue", "/proc/self/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr",  # noqa: S108
    "/dev/tty", "/dev/pts", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/var/lib/dpkg/lock",
)  # fmt: skip
_ALL = re.compile(
    f"[.]?(?:{STAR}|\\.{STAR}|{ANY}{STAR}|\\.{BRACKET}[!^]\\.\\]{STAR}|{LISTED}|{UNKNOWN}|{UNSET}|"
    f"\\.{{1,2}}{STAR}|{BRACKET}[!^]\\.\\]{STAR})+"
)
_EVERY_GLOB = re.compile(f"\\.?[{STAR}{ANY}]*{STAR}[{STAR}{ANY}]*|\\.{BRACKET}[^]]*\\][{STAR}{ANY}]*|\\.\\.?{STAR}")

_CORE = frozenset(
    {"/bin", "/sbin", "/lib", "/lib64", "/usr", "/etc", "/boot", "/home", "/root", "/var", "/dev", "/proc"}
)


class Place(NamedTuple):
    """The workspace's spellings and the home directory, canonical."""

    workspace_roots: tuple[str, ...]
    home: str

    def resolve(self, cwd: str | None, operand: str) -> str | None:
        """The operand as a canonical path; a variable nobody set counts as empty."""
        return join(
            cwd, operand.replace(UNSET, "").replace(SELF, "") or ("/" if UNSET in operand and "/" in operand else ".")
        )

    def is_protected(self, path: str) -> str | None:
        """What makes a directory one that must stay, or None."""
        if path == "/":
            return "the root directory"
        if path in SYSTEM_DIRECTORIES:
            return f"the system directory {path}"
        for root in self.workspace_roots:
            if path == root:
                return "the workspace itself"
            if contains(path, root):
                return "a parent of the workspace"
        if path == self.home or contains(path, self.home):
            return "the home directory"
        if re.fullmatch(r"/(home|Users)/[^/]+", path):
            return "a home directory"
        return None

    def destroyed(self, cwd: str | None, operand: str, *, recursive: bool) -> str | None:
        """What would be lost if the operand were deleted, when that is too much; None when it is not."""
        if not operand or operand == UNSET or (marks.only_marks(operand) and "/" not in operand):
            return None
        path = self.resolve(cwd, operand)
        if path is None:
            return None
        bare = operand.rstrip(marks.VALUES)
        if recursive and bare != operand and bare and bare[-1] not in "/.~":
            emptied = self.resolve(cwd, bare)
            if emptied is not None and self.is_protected(emptied):
                return self.is_protected(emptied)
        if operand.startswith(UNSET):
            # A variable that comes from outside may well be set: only the worst is assumed of it.
            return self._wide(path) if recursive and (path in _CORE or path == "/" or marks.has_glob(path)) else None
        return self._tree(path) or (self._wide(path) if recursive else None)

    def _tree(self, path: str) -> str | None:
        if path.startswith(_FREE):
            return None
        for root in self.workspace_roots:
            if contains(root, path):
                return None
        for tree in SYSTEM_TREES:
            if path != tree and path.startswith(tree + "/") and not components(path)[-1].startswith("."):
                return f"a part of {tree}"
        return None

    def _wide(self, path: str) -> str | None:
        protected = self.is_protected(path)
        if protected:
            return protected
        parts = components(path)
        end = next((at for at, part in enumerate(parts) if not marks.is_known(part)), len(parts))
        if end == len(parts):
            return None
        part = parts[end]
        parent = "/" + "/".join(parts[:end])
        if _EVERY_GLOB.fullmatch(part) or (_ALL.fullmatch(part) and (parent == "/" or LISTED in part)):
            if all(_EVERY_GLOB.fullmatch(rest) or LISTED in rest for rest in parts[end:]):
                kept = self.is_protected(parent)
                return f"all that is in {kept}" if kept and parent != "/tmp" else None  # noqa: S108
            return None
        if marks.has_glob(part):
            return self._matched(parent, parts, end)
        return None

    def _matched(self, parent: str, parts: list[str], end: int) -> str | None:
        if end != len(parts) - 1:
            return None
        pattern = marks.glob_pattern(parts[end])
        for known in SYSTEM_DIRECTORIES:
            head, _, name = known.rpartition("/")
            if (head or "/") == parent and name and name != "tmp" and pattern.match(name):
                return f"the system directory {known}"
        return None

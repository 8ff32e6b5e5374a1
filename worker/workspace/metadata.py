"""Carrying a file's owner, mode, attributes and access lists over to the file that takes its place."""

from __future__ import annotations

import os
import stat

_ACL = "system.posix_acl_access"
_CAPABILITIES = "security.capability"


def keep(old_fd: int, new_fd: int) -> list[str]:
    """Gives the new file what the old one has besides its bytes; one sentence for each thing that could not be kept."""
    old = os.fstat(old_fd)
    notes, mode = _keep_owner(old, new_fd)
    notes += _keep_attributes(old_fd, new_fd)
    # Last: a change of owner clears the set-id bits, and the mode is also the access list's mask.
    os.fchmod(new_fd, mode)
    return notes


def _keep_owner(old: os.stat_result, new_fd: int) -> tuple[list[str], int]:
    mode = stat.S_IMODE(old.st_mode)
    new = os.fstat(new_fd)
    if (new.st_uid, new.st_gid) == (old.st_uid, old.st_gid):
        return [], mode
    for owner in ((old.st_uid, old.st_gid), (-1, old.st_gid)):
        try:
            os.fchown(new_fd, *owner)
            break
        except PermissionError:
            continue
    new = os.fstat(new_fd)
    notes = []
    if new.st_uid != old.st_uid:
        notes.append(f"the owner could not be kept: it was {old.st_uid}, it is {new.st_uid}")
        mode &= ~stat.S_ISUID
    if new.st_gid != old.st_gid:
        notes.append(f"the group could not be kept: it was {old.st_gid}, it is {new.st_gid}")
        mode &= ~stat.S_ISGID
    return notes, mode


def _keep_attributes(old_fd: int, new_fd: int) -> list[str]:
    try:
        names = os.listxattr(old_fd)
        inherited = set(os.listxattr(new_fd))
    except OSError:
        return []  # the file system has none
    lost = []
    for name in names:
        if name == _CAPABILITIES:
            # As the kernel does on any write: new content must not run with the old one's rights.
            lost.append(f"{name} (dropped on purpose)")
            continue
        try:
            value = os.getxattr(old_fd, name)
            if name not in inherited or os.getxattr(new_fd, name) != value:
                os.setxattr(new_fd, name, value)
        except OSError as error:
            lost.append(f"{name} ({os.strerror(error.errno or 0)})")
    if _ACL in inherited and _ACL not in names:
        os.removexattr(new_fd, _ACL)
    return [f"attributes not kept: {', '.join(lost)}"] if lost else []

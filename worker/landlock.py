"""Landlock by ctypes: a ruleset made beforehand, completed and entered when the command is known.

Imports nothing but the standard library: the launcher runs it too.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct

_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1

_EXECUTE = 1 << 0
_WRITE_FILE = 1 << 1
_READ_FILE = 1 << 2
_READ_DIR = 1 << 3
_REFER = 1 << 13
_TRUNCATE = 1 << 14
_IOCTL_DEV = 1 << 15
_FIRST_ABI = (1 << 13) - 1
_NET_BIND_AND_CONNECT_TCP = 0b11
_SCOPE_ABSTRACT_UNIX_AND_SIGNAL = 0b11
_SCOPE_SIGNAL = 0b10
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
# Device and socket nodes are in no set: a command has no business making them.
_MAKE_CHAR = 1 << 6
_MAKE_SOCK = 1 << 9
_MAKE_BLOCK = 1 << 11

READ = _EXECUTE | _READ_FILE | _READ_DIR
"""Read and run files, list directories."""
DEVICE = _READ_FILE | _WRITE_FILE
"""Read and write one device node."""
WRITE = ~(_MAKE_CHAR | _MAKE_SOCK | _MAKE_BLOCK | _IOCTL_DEV)
"""All that a workspace needs; cut to what the kernel knows when it is used."""

MINIMUM_ABI = 4
"""The first with rules for TCP."""

SIGNALS_ABI = 6
"""The first that can keep signals in."""

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, number: int, *arguments: object) -> int:
    result: int = _libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def abi() -> int:
    """The kernel's Landlock version, 0 where there is none or it is not allowed."""
    try:
        return _call("landlock_create_ruleset", _CREATE_RULESET, None, ctypes.c_size_t(0), _CREATE_RULESET_VERSION)
    except OSError:
        return 0


def _handled(version: int) -> int:
    handled = _FIRST_ABI
    if version >= 2:
        handled |= _REFER
    if version >= 3:
        handled |= _TRUNCATE
    if version >= 5:
        handled |= _IOCTL_DEV
    return handled


def create(version: int) -> int:
    """A ruleset that grants nothing: its descriptor.

    Raises:
        OSError: the kernel refused; `strerror` begins with the call's name.
    """
    attributes = struct.pack("=Q", _handled(version))
    if version >= 4:
        attributes += struct.pack("=Q", _NET_BIND_AND_CONNECT_TCP)
    if version >= 6:
        attributes += struct.pack("=Q", _SCOPE_ABSTRACT_UNIX_AND_SIGNAL)
    held = ctypes.create_string_buffer(attributes, len(attributes))
    return _call("landlock_create_ruleset", _CREATE_RULESET, held, ctypes.c_size_t(len(attributes)), 0)


def create_for_signals() -> int:
    """A ruleset that only keeps signals in: what enters it can signal what it starts, and nothing else. From ABI 6 on.

    Raises:
        OSError: the kernel refused; `strerror` begins with the call's name.
    """
    held = ctypes.create_string_buffer(struct.pack("=QQQ", 0, 0, _SCOPE_SIGNAL), 24)
    return _call("landlock_create_ruleset", _CREATE_RULESET, held, ctypes.c_size_t(24), 0)


def grant(ruleset: int, version: int, beneath: int, access: int) -> None:
    """Grant `access` to what lies beneath an open file or directory (O_PATH is enough).

    Raises:
        OSError: the kernel refused; `strerror` begins with the call's name.
    """
    access &= _handled(version)
    if not stat.S_ISDIR(os.fstat(beneath).st_mode):
        access &= _OF_FILES
    held = ctypes.create_string_buffer(struct.pack("=Qi", access, beneath), 12)
    _call("landlock_add_rule", _ADD_RULE, ctypes.c_int(ruleset), _RULE_PATH_BENEATH, held, 0)


def enter(ruleset: int) -> None:
    """Put this thread and all it starts under the ruleset, for good. Needs no_new_privs.

    Raises:
        OSError: the kernel refused; `strerror` begins with the call's name.
    """
    _call("landlock_restrict_self", _RESTRICT_SELF, ctypes.c_int(ruleset), 0)

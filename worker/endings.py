"""What the way a command ended says: a signal, or a limit that the kernel enforced."""

from __future__ import annotations

import signal

from worker.capture import Capture

_LIMIT_OF_SIGNAL: dict[str | None, str] = {"XCPU": "cpu", "XFSZ": "file_size"}
_LIMIT_OF_WORDS = {
    "file_size": (b"File size limit exceeded", b"File too large"),
    "memory": (b"annot allocate memory", b"MemoryError", b"std::bad_alloc", b"memory exhausted", b"ut of memory"),
    "processes": (b"fork: Resource temporarily unavailable", b"fork: retry: Resource temporarily unavailable"),
    "cpu": (b"CPU time limit exceeded",),
}


def signal_named(exit_code: int) -> str | None:
    """The signal that an exit code of 128+n stands for: `KILL` for 137."""
    try:
        return signal.Signals(exit_code - 128).name.removeprefix("SIG") if exit_code > 128 else None
    except ValueError:
        return None


def limits_in(name: str | None, exit_code: int, stderr: Capture) -> list[str]:
    """The limits that a command ran into by itself, as far as its signal and its last words tell."""
    # The kernel's limits end a process by a signal or fail its call; which, only the program can say.
    found = [_LIMIT_OF_SIGNAL[name]] if name in _LIMIT_OF_SIGNAL else []
    if exit_code != 0 or stderr.total_bytes:
        tail = stderr.tail()
        found += [limit for limit, words in _LIMIT_OF_WORDS.items() if any(word in tail for word in words)]
    return found

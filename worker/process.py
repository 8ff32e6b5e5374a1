"""One command: its limits, its output, the end of its tree."""

from __future__ import annotations

from msgspec import Struct


class Limits(Struct, frozen=True, kw_only=True):
    """What one command may use. A limit that is hit ends the command and is named in the reply."""

    wall_s: float = 120.0
    cpu_s: float = 600.0
    memory_bytes: int = 4 * 1024**3
    """Of the whole tree, and of private data in any one process."""
    processes: int = 512
    """Processes and threads of the whole tree."""
    file_bytes: int = 2 * 1024**3
    """Size of any one file."""
    open_files: int = 4096
    """Descriptors of any one process."""
    output_bytes: int = 200 * 1024
    """Kept in the reply of each stream, half of its head and half of its tail."""
    spill_bytes: int = 64 * 1024**2
    """Kept of each stream in a file of the workspace when it does not fit the reply."""
    output_total_bytes: int = 8 * 1024**3
    """Of both streams together, kept or not; more ends the command."""
    progress_bytes: int = 1024**2
    """Sent as progress entries; the rest is counted as dropped."""
    tmp_bytes: int = 512 * 1024**2
    """Size of the command's private /tmp where it has one."""
    workspace_bytes: int | None = None
    """What the workspace may hold while the command runs."""

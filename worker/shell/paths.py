"""Paths made canonical without looking at any file system."""

from __future__ import annotations

import functools
import posixpath

from worker.shell.marks import UNKNOWN, has_value_mark

_CLIMB = 8
"""So many `..` reach the root from anywhere a workspace is likely to be."""


@functools.lru_cache(maxsize=2048)
def join(cwd: str | None, path: str) -> str | None:
    """The canonical absolute path, or None when it hangs on an unknown directory."""
    if path.count("../") >= _CLIMB and not path.startswith("/"):
        return "/"
    if not path.startswith("/"):
        if path[:1] and has_value_mark(path[:1]):
            return None
        if cwd is None:
            return None
        path = f"{cwd}/{path}"
    return canonical(path)


@functools.lru_cache(maxsize=2048)
def canonical(path: str) -> str:
    """An absolute path without `.`, `..` and doubled slashes; what stands before `..` counts as a plain directory."""
    normal = posixpath.normpath(path)
    return normal[1:] if normal.startswith("//") else normal


def components(path: str) -> list[str]:
    """The names an absolute path goes through."""
    return [part for part in path.split("/") if part]


def unknown_beneath(path: str) -> str:
    """A path for whatever lies in a directory."""
    return f"{path.rstrip('/')}/{UNKNOWN}"


def contains(parent: str, path: str) -> bool:
    """Whether the path is the parent or lies beneath it; both canonical."""
    return path == parent or parent == "/" or path.startswith(parent + "/")

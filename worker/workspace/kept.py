"""Workspaces kept open from one call to the next: opening one costs as much as reading a small file."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable

from worker.workspace.root import Workspace

MAX_KEPT = 256


class KeptWorkspaces:
    """Opens workspaces, and hands out the same one again while its name still means the same directory.

    One that is dropped is closed when the last call that holds it lets go of it. `on_open` is told of each new one.
    """

    def __init__(self, on_open: Callable[[Workspace], object]) -> None:
        self._on_open = on_open
        self._kept: OrderedDict[str, tuple[Workspace, tuple[int, int]]] = OrderedDict()

    def open(self, root: str) -> Workspace:
        """The workspace in the directory `root`, made if it is missing.

        Raises:
            OSError: it is no directory, or can't be made or opened.
        """
        kept = self._kept.get(root)
        if kept is not None:
            workspace, known = kept
            if _identity(root) == known:
                self._kept.move_to_end(root)
                return workspace
            del self._kept[root]
        workspace = Workspace.open(root)
        self._on_open(workspace)
        identity = _identity(root)
        if identity is not None:
            self._kept[root] = (workspace, identity)
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return workspace


def _identity(root: str) -> tuple[int, int] | None:
    try:
        status = os.stat(root)
    except OSError:
        return None
    return status.st_dev, status.st_ino

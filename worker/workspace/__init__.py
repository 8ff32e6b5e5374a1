"""Wire path -> open file beneath the workspace's root, and files replaced as a whole. Nothing else opens files."""

from worker.workspace.beneath import Place
from worker.workspace.faults import (
    Busy,
    Conflict,
    HardLinked,
    InvalidPath,
    NotADirectory,
    NotRegular,
    Outside,
    ReadOnly,
    Stopped,
    kind_of,
)
from worker.workspace.kept import KeptWorkspaces
from worker.workspace.names import Spot, from_wire, locate, printable, to_wire
from worker.workspace.replacement import Replacement
from worker.workspace.root import STATE_DIRECTORY, Opened, Workspace, is_hidden
from worker.workspace.scratch import Scratch
from worker.workspace.temps import is_temp

__all__ = [
    "STATE_DIRECTORY",
    "Busy",
    "Conflict",
    "HardLinked",
    "InvalidPath",
    "KeptWorkspaces",
    "NotADirectory",
    "NotRegular",
    "Opened",
    "Outside",
    "Place",
    "ReadOnly",
    "Replacement",
    "Scratch",
    "Spot",
    "Stopped",
    "Workspace",
    "from_wire",
    "is_hidden",
    "is_temp",
    "kind_of",
    "locate",
    "printable",
    "to_wire",
]

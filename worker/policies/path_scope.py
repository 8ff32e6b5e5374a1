"""Writing and running stay inside the workspace: judged by the path's text, before anything is looked up.

Where links lead is found out when the file is opened (`worker.workspace`), and fails there.
"""

from __future__ import annotations

from typing import Any

from worker.decisions import Decision, Judged, allow, deny
from worker.workspace import STATE_DIRECTORY, InvalidPath, is_temp, locate

POLICY = "path_scope"

_PATH_OF = {
    "write_file": "path",
    "edit_file": "path",
    "exec.write": "path",
    "run_command": "cwd",
    "exec.run": "cwd",
    "exec.test": "cwd",
    "exec.install": "cwd",
}


def judge(judged: Judged) -> Decision | None:
    """Deny for a target outside of the workspace or among the worker's own files; None for tools that only read."""
    argument = _PATH_OF.get(judged.call.tool)
    if argument is None:
        return None
    args: Any = judged.call.args
    path = getattr(args, argument, None)
    if path is None:
        return allow(POLICY, "workspace")
    try:
        spot = locate(path, judged.workspace_roots)
    except InvalidPath as error:
        return deny(POLICY, "invalid_path", f"{argument}: {error}")
    if spot is None:
        return deny(POLICY, "outside_workspace", f"{argument} is outside of the workspace")
    if argument == "path" and spot.parts and (spot.parts[0] == STATE_DIRECTORY or is_temp(spot.parts[-1])):
        return deny(POLICY, "reserved", f"{argument} names a file of the worker's own")
    return allow(POLICY, "workspace")

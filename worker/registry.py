"""Three explicit tables: what runs, what judges, in which order."""

from __future__ import annotations

from collections.abc import Mapping

from worker.hooks.pre_tool_call import Policy
from worker.parts import RunTool
from worker.policies import command_denylist, path_scope, plan_gate, secret_use, session_prepared, write_down
from worker.tools import edit_file, list_directory, plan_propose, read_file, run_command, search_files, write_file

TOOLS: Mapping[str, RunTool] = {
    "read_file": read_file.run,
    "write_file": write_file.run,
    "edit_file": edit_file.run,
    "list_directory": list_directory.run,
    "search_files": search_files.run,
    "run_command": run_command.run,
    "plan.propose": plan_propose.run,
}

POLICIES: Mapping[str, Policy] = {
    "session_prepared": session_prepared.judge,
    "plan_gate": plan_gate.judge,
    "path_scope": path_scope.judge,
    "write_down": write_down.judge,
    "secret_use": secret_use.judge,
    "command_denylist": command_denylist.judge,
}

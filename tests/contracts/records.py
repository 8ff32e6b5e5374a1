"""One call and one reply a tool, and one reply of each other kind, with every field that travels.

python -m tests.contracts.records    writes the files again, after a change of the contract that is meant
"""

from __future__ import annotations

from pathlib import Path

from contracts.codec import encode, encode_call
from contracts.levels import Level
from contracts.replies import Completed, Denied, Error, Failed, Progress
from contracts.tools import (
    Args,
    Edit,
    EditFileArgs,
    EditFileOutput,
    EntryDetails,
    ListDirectoryArgs,
    ListDirectoryOutput,
    Match,
    Output,
    PlanProposeArgs,
    PlanProposeOutput,
    PlanStep,
    ReadFileArgs,
    ReadFileOutput,
    RunCommandArgs,
    RunCommandOutput,
    SearchFilesArgs,
    SearchFilesOutput,
    WriteFileArgs,
    WriteFileOutput,
)

FOLDER = Path(__file__).parent / "golden"
SHA256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

TOOLS: dict[str, tuple[Args, Output]] = {
    "read_file": (
        ReadFileArgs(path="/srv/ws/a.txt", offset=2, limit=1),
        ReadFileOutput(
            text="zwei 💡\n",
            encoding="utf-8",
            sha256=SHA256,
            total_lines=3,
            next_offset=3,
            bytes=20,
            line_endings="lf",
            truncated=True,
        ),
    ),
    "write_file": (
        WriteFileArgs(path="src/a.py", content='print("ä")\n', if_match=SHA256),
        WriteFileOutput(path="src/a.py", bytes=12, sha256=SHA256, created=False),
    ),
    "edit_file": (
        EditFileArgs(path="src/a.py", edits=[Edit(old_text="1", new_text="2"), Edit(old_text="x", new_text="")]),
        EditFileOutput(path="src/a.py", bytes=9, sha256=SHA256, line=1, diff="-1x\n+2\n"),
    ),
    "list_directory": (
        ListDirectoryArgs(path=".", depth=2, details=True),
        ListDirectoryOutput(
            entries=["src/", "link"],
            total=2,
            details=[
                EntryDetails(name="src/", kind="directory"),
                EntryDetails(name="link", kind="link", target="src"),
            ],
        ),
    ),
    "search_files": (
        SearchFilesArgs(path=".", pattern="def \\w+", content_search=True, context_lines=1),
        SearchFilesOutput(
            matches=[Match(path="a.py", line=3, text="def f():", before=[""], after=["    pass"])], total=1
        ),
    ),
    "run_command": (
        RunCommandArgs(command="printf 'a\\0b' >&2; exit 3", timeout_s=1.5, cwd="src"),
        RunCommandOutput(stdout="", stderr="a\0b", exit_code=3, duration_ms=4),
    ),
    "plan.propose": (
        PlanProposeArgs(
            summary="Rename f to g", steps=[PlanStep(description="edit", paths=["a.py"], tools=["edit_file"])]
        ),
        PlanProposeOutput(digest=SHA256, version=1, state="awaiting"),
    ),
}


def files() -> dict[str, bytes]:
    """What each golden file must hold."""
    made = {}
    for tool, (args, output) in TOOLS.items():
        made[f"{tool}.call.json"] = encode_call(tool, args, enqueued_ms=1_796_000_000_000)
        made[f"{tool}.reply.json"] = encode(
            Completed(
                session="s1",
                call="c1",
                tool=tool,
                output=output,
                level=Level.INTERNAL,
                taint=Level.CONFIDENTIAL,
                queued_ms=1,
                run_ms=2,
            )
        )
    made["full.call.json"] = encode_call(
        "read_file",
        {"path": "a"},
        enqueued_ms=1_796_000_000_000,
        deadline_ms=1_796_000_060_000,
        priority="batch",
        trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    made["progress.reply.json"] = encode(
        Progress(session="s1", call="c1", seq=1, stream="stderr", text="…", dropped_bytes=7, level=Level.PUBLIC)
    )
    made["denied.reply.json"] = encode(
        Denied(
            session="s1",
            call="c1",
            tool="run_command",
            error=Error(
                code="forbidden",
                message="sudo is denied",
                effect="none",
                retryable=False,
                policy="command_denylist",
                rule="privilege",
            ),
        )
    )
    made["failed.reply.json"] = encode(
        Failed(
            session="s1",
            call="c1",
            tool="run_command",
            output=RunCommandOutput(stdout="so far", stderr="", exit_code=None, timed_out=True, duration_ms=1500),
            error=Error(
                code="timeout",
                message="took longer than 1.5 s",
                effect="unknown",
                retryable=True,
                retry_after_ms=1000,
                hint="raise timeout_s",
            ),
            attempt=2,
            truncated=True,
        )
    )
    return made


if __name__ == "__main__":
    for stale in FOLDER.glob("*.json"):
        stale.unlink()
    for name, data in files().items():
        (FOLDER / name).write_bytes(data)

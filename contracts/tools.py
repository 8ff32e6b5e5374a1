"""One arguments struct and one output struct a tool, its effect class, and what to tell a model about it."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

# The bound is JSON's: past it not every language reads the same number.
PositiveInt = Annotated[int, Meta(ge=1, le=2**53 - 1)]
NonNegativeInt = Annotated[int, Meta(ge=0, le=2**53 - 1)]
# `$` alone would let a line end pass.
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", max_length=64)]


class Args(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What goes in. Unknown fields are refused, so that a misspelt safety option never passes unseen."""


class Output(Struct, frozen=True, kw_only=True):
    """What comes out. Readers ignore fields that they don't know."""


class ReadFileArgs(Args, frozen=True):
    path: Annotated[str, Meta(description="Absolute path, or a path relative to the workspace.")]
    offset: Annotated[PositiveInt | None, Meta(description="First line to return, counted from 1.")] = None
    limit: Annotated[PositiveInt | None, Meta(description="How many lines to return at most.")] = None
    byte_offset: Annotated[NonNegativeInt | None, Meta(description="First byte to return, instead of `offset`.")] = None
    byte_limit: Annotated[PositiveInt | None, Meta(description="How many bytes to return at most.")] = None
    encoding: Annotated[str | None, Meta(description="Decode as this instead of telling it by the bytes.")] = None


class ReadFileOutput(Output, frozen=True):
    text: str
    encoding: str
    sha256: str | None = None
    total_lines: int | None = None
    next_offset: int | None = None
    next_byte_offset: int | None = None
    bytes: int | None = None
    line_endings: str | None = None
    truncated: bool = False
    notes: list[str] = []


class WriteFileArgs(Args, frozen=True):
    path: Annotated[str, Meta(description="Path relative to the workspace.")]
    content: Annotated[str, Meta(description="The whole new text of the file.")]
    if_match: Annotated[Sha256 | None, Meta(description="Write only if the file's sha256 is still this.")] = None
    create_only: Annotated[bool, Meta(description="Fail if the file exists.")] = False
    dry_run: Annotated[bool, Meta(description="Answer with the diff and change nothing.")] = False


class WriteFileOutput(Output, frozen=True):
    path: str
    bytes: int
    sha256: str
    created: bool
    diff: str | None = None
    notes: list[str] = []


class Edit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One replacement of several."""

    old_text: str
    new_text: str


class EditFileArgs(Args, frozen=True):
    path: Annotated[str, Meta(description="Absolute path, or a path relative to the workspace.")]
    old_text: Annotated[str | None, Meta(description="Text that occurs exactly once in the file.")] = None
    new_text: Annotated[str | None, Meta(description="What takes its place; empty deletes.")] = None
    edits: Annotated[
        list[Edit] | None, Meta(description="Several replacements, in order, instead of old_text and new_text.")
    ] = None
    if_match: Annotated[Sha256 | None, Meta(description="Edit only if the file's sha256 is still this.")] = None
    dry_run: Annotated[bool, Meta(description="Answer with the diff and change nothing.")] = False
    encoding: Annotated[str | None, Meta(description="The file's encoding, where its bytes don't tell it.")] = None


class EditFileOutput(Output, frozen=True):
    path: str
    bytes: int
    sha256: str
    line: int
    diff: str
    notes: list[str] = []


class ListDirectoryArgs(Args, frozen=True):
    path: Annotated[str, Meta(description="Absolute path, or a path relative to the workspace.")]
    depth: Annotated[PositiveInt | None, Meta(description="How many levels to descend; 1 when left out.")] = None
    limit: Annotated[PositiveInt | None, Meta(description="How many entries to return at most.")] = None
    details: Annotated[bool, Meta(description="Also kinds, sizes and times.")] = False


class EntryDetails(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of one entry of a listing."""

    name: str
    kind: str
    bytes: int | None = None
    modified: str | None = None
    target: str | None = None
    problem: str | None = None


class ListDirectoryOutput(Output, frozen=True):
    entries: list[str]
    total: int
    truncated: bool = False
    reason: str | None = None
    details: list[EntryDetails] | None = None
    marks: dict[str, str] = {}


class SearchFilesArgs(Args, frozen=True):
    path: Annotated[str, Meta(description="Where to search: absolute, or relative to the workspace.")]
    pattern: Annotated[str, Meta(description="A glob over file names; with content_search a regular expression.")]
    content_search: Annotated[bool, Meta(description="Search inside files instead of over their names.")] = False
    limit: Annotated[PositiveInt | None, Meta(description="How many matches to return at most.")] = None
    context_lines: Annotated[NonNegativeInt | None, Meta(description="Lines to show around each match.")] = None
    case_sensitive: Annotated[bool, Meta(description="False to ignore case.")] = True
    literal: Annotated[bool, Meta(description="Take the pattern as plain text.")] = False
    ignore_files: Annotated[bool, Meta(description="Honour .gitignore and .ignore files.")] = True


class Match(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file name that matched, or one line that did."""

    path: str
    line: int | None = None
    text: str | None = None
    column: int | None = None
    clipped: bool = False
    before: list[str] | None = None
    after: list[str] | None = None
    mark: str | None = None


class SearchFilesOutput(Output, frozen=True):
    matches: list[Match]
    total: int | None = None
    truncated: bool = False
    reason: str | None = None
    warnings: list[str] = []


class RunCommandArgs(Args, frozen=True):
    command: Annotated[str, Meta(description="Given to bash as it is, with the workspace as working directory.")]
    timeout_s: Annotated[
        Annotated[float, Meta(gt=0, le=86400)] | None, Meta(description="Wall time after which it is killed.")
    ] = None
    cwd: Annotated[str | None, Meta(description="Working directory inside the workspace.")] = None
    background: Annotated[bool, Meta(description="Not offered yet: true is refused.")] = False


class RunCommandOutput(Output, frozen=True):
    stdout: str
    stderr: str
    exit_code: int | None
    signal: str | None = None
    timed_out: bool = False
    duration_ms: int = 0
    limits_hit: list[str] = []
    omitted_bytes: dict[str, int] | None = None
    spill: str | None = None
    truncated: bool = False
    notes: list[str] = []


class PlanStep(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step of a plan."""

    description: str
    paths: list[str] = []
    tools: list[str] = []


class PlanProposeArgs(Args, frozen=True):
    summary: Annotated[str, Meta(min_length=1, max_length=10_000, description="What will be done, and why.")]
    steps: Annotated[list[PlanStep], Meta(max_length=200, description="The steps, in order.")] = []


class PlanProposeOutput(Output, frozen=True):
    digest: str
    version: int
    state: str


class Effect(enum.Enum):
    """`read` may be repeated and runs beside other reads; `effect` is never repeated and runs alone in its session."""

    READ = "read"
    EFFECT = "effect"


class Tool(Struct, frozen=True, kw_only=True):
    """What the contract says of one tool."""

    name: str
    args: type[Args]
    output: type[Output]
    effect: Effect
    description: str
    destructive: bool = False
    idempotent: bool = False
    """Of an effect: the same call once more changes nothing more. For what a model may be told, not for retries."""
    allowed_while_planning: bool = False


TOOLS: dict[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool(
            name="read_file",
            args=ReadFileArgs,
            output=ReadFileOutput,
            effect=Effect.READ,
            description="Read a text file: whole up to a cap, or a range of lines or bytes.",
            allowed_while_planning=True,
        ),
        Tool(
            name="write_file",
            args=WriteFileArgs,
            output=WriteFileOutput,
            effect=Effect.EFFECT,
            description="Write a whole file in the workspace, atomically. Parents are made.",
            destructive=True,
            idempotent=True,
        ),
        Tool(
            name="edit_file",
            args=EditFileArgs,
            output=EditFileOutput,
            effect=Effect.EFFECT,
            description="Replace old_text, which must occur exactly once, by new_text. All else stays byte for byte.",
            destructive=True,
        ),
        Tool(
            name="list_directory",
            args=ListDirectoryArgs,
            output=ListDirectoryOutput,
            effect=Effect.READ,
            description="List a directory, sorted; directories end in a slash.",
            allowed_while_planning=True,
        ),
        Tool(
            name="search_files",
            args=SearchFilesArgs,
            output=SearchFilesOutput,
            effect=Effect.READ,
            description="Find files by a glob over their names or, with content_search, lines by a regular expression.",
            allowed_while_planning=True,
        ),
        Tool(
            name="run_command",
            args=RunCommandArgs,
            output=RunCommandOutput,
            effect=Effect.EFFECT,
            description="Run a command with bash in the workspace, inside a sandbox without network.",
            destructive=True,
        ),
        Tool(
            name="plan.propose",
            args=PlanProposeArgs,
            output=PlanProposeOutput,
            effect=Effect.EFFECT,
            description="Propose a plan for approval by someone who is not an agent.",
            allowed_while_planning=True,
        ),
    )
}


def read_output(tool: str, output: Any) -> Output:
    """The typed output of a reply's `output` object.

    Raises:
        KeyError: the tool is unknown.
        msgspec.ValidationError: the object does not have the tool's shape.
    """
    return msgspec.convert(output, TOOLS[tool].output)

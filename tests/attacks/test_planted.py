"""What a command leaves in the workspace never leads a file tool out of it, nor the next command."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts.tools import TOOLS, Output
from tests.walled import WALLS, Commands, Wall, walled
from worker.failures import CallFailed
from worker.tools import edit_file, list_directory, read_file, search_files, write_file

REFUSED = {"forbidden", "wrong_kind", "not_found"}

_RUN: dict[str, Callable[[Any, Any], Awaitable[Output]]] = {
    "read_file": read_file.run,
    "write_file": write_file.run,
    "edit_file": edit_file.run,
    "list_directory": list_directory.run,
    "search_files": search_files.run,
}


@pytest.fixture(scope="module", params=WALLS)
def commands(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    wall: Wall = request.param
    root = tmp_path_factory.mktemp("planted")
    outside = root / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s3cr3t\n")
    with walled(wall, root / "workspace") as found:
        assert found.run(f"ln -s {outside} door; ln -s {outside}/secret key; mkfifo pipe; mkdir d").exit_code == 0
        assert found.run("ln -s /proc/self/root proc; ln -s ../../outside up; ln -s pipe to-pipe").exit_code == 0
        yield found


def use(commands: Commands, tool: str, **args: Any) -> str:
    """The answer as text, or the code of the failure; always soon."""

    async def call() -> str:
        async with asyncio.timeout(20):
            try:
                answer = await _RUN[tool](msgspec.convert(args, TOOLS[tool].args), commands.context())
            except CallFailed as error:
                return error.code
            except OSError as error:
                return type(error).__name__
            return msgspec.json.encode(answer).decode()

    return asyncio.run(call())


@pytest.mark.parametrize(
    "path", ["door/secret", "key", "up/secret", "proc/etc/passwd", "pipe", "to-pipe", "door/../key"]
)
def test_nothing_planted_is_read(commands: Commands, path: str) -> None:
    assert use(commands, "read_file", path=path) in REFUSED


@pytest.mark.parametrize("path", ["door/new", "key", "up/new", "door/secret", "proc/tmp/new", "pipe", "to-pipe"])
def test_nothing_planted_is_written(commands: Commands, path: str) -> None:
    assert use(commands, "write_file", path=path, content="x") in REFUSED
    assert use(commands, "edit_file", path=path, old_text="s3cr3t", new_text="x") in REFUSED
    outside = commands.root.parent / "outside"
    assert {entry.name: entry.read_text() for entry in outside.iterdir()} == {"secret": "s3cr3t\n"}


def test_nothing_planted_is_listed_or_searched(commands: Commands) -> None:
    for path in ("door", "up", "proc"):
        assert use(commands, "list_directory", path=path) in REFUSED
    assert "secret" not in use(commands, "list_directory", path=".", depth=3)
    assert "s3cr3t" not in use(commands, "search_files", path=".", pattern="s3cr", content_search=True)


@pytest.mark.parametrize("cwd", ["door", "up", "proc", "key", "pipe"])
def test_no_command_starts_there(commands: Commands, cwd: str) -> None:
    with pytest.raises(CallFailed) as caught:
        commands.run("cat secret; pwd", cwd=cwd)
    assert caught.value.code in REFUSED


def test_a_cwd_swapped_for_a_link_never_leads_out(commands: Commands) -> None:
    """The directory is opened beneath the workspace; what its name becomes later does not count."""
    outside = commands.root.parent / "outside"
    if commands.sandbox.tier == "none":
        pytest.skip("there is no wall")

    async def race() -> list[str]:
        swapper = asyncio.create_task(
            commands.start(f"for i in $(seq 60); do mkdir s; rmdir s; ln -s {outside} s; rm s; done")
        )
        seen = []
        while not swapper.done():
            try:
                seen.append((await commands.start("pwd -P; cat secret", cwd="s")).stdout)
            except CallFailed:
                await asyncio.sleep(0)
        await swapper
        return seen

    for stdout in asyncio.run(race()):
        assert "s3cr3t" not in stdout


def test_files_that_tools_write_are_the_commands_own(commands: Commands) -> None:
    """And the reverse: what a file tool wrote, a command can read, change and run."""
    assert "bytes" in use(commands, "write_file", path="run.sh", content="echo ran $1\n")
    assert Path(commands.root / "run.sh").exists()
    assert commands.run("bash run.sh here; echo more >> run.sh; chmod +x run.sh").stdout == "ran here\n"
    assert "more" in use(commands, "read_file", path="run.sh")

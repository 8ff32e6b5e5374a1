"""A workspace, and the file tools called as the executor calls them."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from contracts.calls import Session
from contracts.replies import ErrorCode
from contracts.tools import TOOLS, Output
from worker.failures import CallFailed
from worker.process import Limits
from worker.sandbox import Sandbox
from worker.tools import edit_file, list_directory, read_file, search_files, write_file
from worker.tools.context import ToolContext
from worker.workspace import Workspace

_RUN: dict[str, Callable[[Any, ToolContext], Awaitable[Output]]] = {
    "read_file": read_file.run,
    "write_file": write_file.run,
    "edit_file": edit_file.run,
    "list_directory": list_directory.run,
    "search_files": search_files.run,
}


class Files:
    """The tools on one workspace, in one session; `root` is its directory."""

    def __init__(self, root: Path, session: str = "s1") -> None:
        self.root = root
        self.workspace = Workspace.open(str(root))
        self.session = session
        self.opened: list[str] = []

    def context(self) -> ToolContext:
        """As the executor makes one. The file tools never touch the sandbox."""
        return ToolContext(
            workspace=self.workspace,
            sandbox=cast(Sandbox, None),
            limits=Limits(),
            session=Session(name=self.session, workspace="w"),
            call="c1",
        )

    async def run(self, tool: str, **args: Any) -> Any:
        """The output of a call whose arguments travelled as JSON; it must be valid JSON as well."""
        wanted = msgspec.json.decode(msgspec.json.encode(args), type=TOOLS[tool].args)
        context = self.context()
        try:
            output = await _RUN[tool](wanted, context)
        finally:
            self.opened = context.opened
        return msgspec.json.decode(msgspec.json.encode(output), type=type(output))

    def call(self, tool: str, **args: Any) -> Any:
        """`run`, to its end."""
        return asyncio.run(self.run(tool, **args))

    def read(self, path: str, **args: Any) -> Any:
        return self.call("read_file", path=path, **args)

    def write(self, path: str, content: str, **args: Any) -> Any:
        return self.call("write_file", path=path, content=content, **args)

    def edit(self, path: str, old_text: str | None = None, new_text: str | None = None, **args: Any) -> Any:
        given = {"old_text": old_text, "new_text": new_text, **args}
        return self.call("edit_file", path=path, **{name: value for name, value in given.items() if value is not None})

    def found(self, pattern: str, path: str = ".", **args: Any) -> list[str]:
        """The paths that a search finds."""
        return [match.path for match in self.search(pattern, path, **args).matches]

    def search(self, pattern: str, path: str = ".", **args: Any) -> Any:
        return self.call("search_files", path=path, pattern=pattern, **args)

    def list(self, path: str = ".", **args: Any) -> Any:
        return self.call("list_directory", path=path, **args)

    def fail(self, code: ErrorCode, tool: str, **args: Any) -> CallFailed:
        """The failure of a call that must fail with the code."""
        with pytest.raises(CallFailed) as caught:
            self.call(tool, **args)
        assert caught.value.code == code, caught.value
        return caught.value

    def put(self, path: str | bytes, data: bytes) -> None:
        """Makes a file, and its parents, without the tools."""
        whole = os.path.join(os.fsencode(self.root), os.fsencode(path))
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        with open(whole, "wb") as file:
            file.write(data)

    def get(self, path: str) -> bytes:
        """A file's bytes."""
        return (self.root / path).read_bytes()

    def tree(self) -> dict[str, bytes | None]:
        """Everything that is there: files with their bytes, all else with None."""
        return {
            str(path.relative_to(self.root)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
            for path in sorted(self.root.rglob("*"))
        }


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """The block runs with the rights of an ordinary user, where the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    dumpable = ctypes.CDLL(None).prctl
    os.setegid(65534)
    os.seteuid(65534)
    try:
        dumpable(4, 1, 0, 0, 0)  # else /proc/self/fd would stay root's
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        dumpable(4, 1, 0, 0, 0)


def give_to_nobody(root: Path) -> None:
    """Makes an ordinary user the owner of a whole tree, where the tests run as root."""
    if os.geteuid() == 0:
        for path in (root, *root.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    """The tools on an empty workspace."""
    root = tmp_path / "ws"
    root.mkdir()
    made = Files(root)
    yield made
    made.workspace.close()

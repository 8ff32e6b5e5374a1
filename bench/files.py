"""`python -m bench.files [DIRECTORY]`: the file tools beside the bare system calls, interleaved; medians and ratios.

Everything is made in a directory of its own beneath DIRECTORY (default: the current one), whose disk is what counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import cast

import aiofiles

from contracts.calls import Session
from contracts.tools import EditFileArgs, ListDirectoryArgs, ReadFileArgs, SearchFilesArgs, WriteFileArgs
from worker.process import Limits
from worker.sandbox import Sandbox
from worker.tools import edit_file, list_directory, read_file, ripgrep, search_files, write_file
from worker.tools.context import ToolContext
from worker.tools.offload import in_thread
from worker.workspace import Workspace

ROUNDS = 7
TREE_FILES, TREE_BYTES = 4000, 200 * 1024 * 1024

Act = Callable[[], Awaitable[object]]


class Bench:
    """A workspace to measure in."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workspace = Workspace.open(str(root))

    def context(self) -> ToolContext:
        return ToolContext(
            workspace=self.workspace,
            sandbox=cast(Sandbox, None),
            limits=Limits(),
            session=Session(name="bench", workspace="w"),
            call="c",
        )

    async def compare(self, title: str, times: int, acts: dict[str, Act]) -> None:
        """Prints the median time of each act, and its ratio to the first."""
        took: dict[str, list[float]] = {name: [] for name in acts}
        for _ in range(ROUNDS):
            for name, act in acts.items():
                began = time.perf_counter()
                for _ in range(times):
                    await act()
                took[name].append((time.perf_counter() - began) / times)
        floor = statistics.median(next(iter(took.values())))
        print(f"\n{title}")
        for name, values in took.items():
            median = statistics.median(values)
            print(f"  {name:44} {median * 1e6:12,.0f} us   x {median / floor:.2f}")


async def reads(bench: Bench) -> None:
    for size in (1024, 64 * 1024, 1024 * 1024):
        path = bench.root / f"read{size}"
        path.write_bytes(b"0123456789abcde\n" * (size // 16))
        args = ReadFileArgs(path=path.name)

        def bare(path: Path = path) -> bytes:
            fd = os.open(path, os.O_RDONLY)
            try:
                return os.read(fd, 2 * 1024 * 1024)
            finally:
                os.close(fd)

        async def direct(bare: Callable[[], bytes] = bare) -> object:
            return bare()

        async def through_aiofiles(path: Path = path) -> object:
            async with aiofiles.open(path, "rb") as file:
                return await file.read()

        def hop(bare: Callable[[], bytes] = bare) -> Awaitable[object]:
            return in_thread(bare)

        def tool(args: ReadFileArgs = args) -> Awaitable[object]:
            return read_file.run(args, bench.context())

        async def tool_uncached(args: ReadFileArgs = args) -> object:
            bench.workspace._local = False
            try:
                return await read_file.run(args, bench.context())
            finally:
                bench.workspace._local = True

        acts: dict[str, Act] = {
            "open, read, close on the loop": direct,
            "the same in one hop": hop,
            "the same by aiofiles": through_aiofiles,
        }
        acts |= {"read_file": tool, "read_file where a look-up may wait": tool_uncached}
        await bench.compare(f"read of {size:,} bytes", max(200 * 1024 // size, 5) * 2, acts)


async def writes(bench: Bench) -> None:
    where = os.open(bench.root, os.O_RDONLY)
    for size in (1024, 1024 * 1024, 16 * 1024 * 1024):
        content = "0123456789abcde\n" * (size // 16)
        data = content.encode()

        def bare(data: bytes = data) -> None:
            fd = os.open(bench.root / "bare.tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                os.write(fd, data)
                os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(bench.root / "bare.tmp", bench.root / "bare.txt")
            os.fsync(where)

        async def direct(bare: Callable[[], None] = bare) -> None:
            bare()

        def tool(content: str = content) -> Awaitable[object]:
            return write_file.run(WriteFileArgs(path="tool.txt", content=content), bench.context())

        async def edit(content: str = content) -> object:
            Path(bench.root / "edit.txt").write_bytes(b"begin\n")
            return await edit_file.run(EditFileArgs(path="edit.txt", old_text="begin", new_text="end"), bench.context())

        acts: dict[str, Act] = {"write, fsync, rename, fsync the directory": direct, "write_file": tool}
        if size == 1024:
            acts["edit_file (and making the file anew)"] = edit
        await bench.compare(f"write of {size:,} bytes", 3 if size > 10**6 else 30, acts)
    os.close(where)


def make_tree(root: Path) -> None:
    words = [f"word{number}" for number in range(5000)]
    chance = random.Random(1)
    for number in range(TREE_FILES):
        home = root / f"d{number % 40}/e{number % 7}"
        home.mkdir(parents=True, exist_ok=True)
        lines, size = [], 0
        while size < TREE_BYTES // TREE_FILES:
            lines.append(" ".join(chance.choices(words, k=10)))
            size += len(lines[-1]) + 1
        (home / f"f{number}.txt").write_text("\n".join(lines) + "\n")


async def searches(bench: Bench) -> None:
    make_tree(bench.root / "tree")

    def engine(*options: str) -> Act:
        async def run() -> object:
            command = [ripgrep.binary(), "--no-config", *options]
            return subprocess.run(command, cwd=bench.root / "tree", capture_output=True, check=False)  # noqa: ASYNC221

        return run

    def search(pattern: str, **more: bool) -> Act:
        args = SearchFilesArgs(path="tree", pattern=pattern, **more)
        return lambda: search_files.run(args, bench.context())

    for title, pattern in (("no match", "wordless"), ("few matches", "word17 word4[0-9] "), ("many matches", "word42")):
        acts = {"rg": engine("-n", "-e", pattern, "--", "./"), "search_files": search(pattern, content_search=True)}
        await bench.compare(f"content of {TREE_FILES:,} files, {TREE_BYTES >> 20} MiB, {title}", 1, acts)
    await bench.compare(
        f"names of {TREE_FILES:,} files", 3, {"rg --files": engine("--files"), "search_files": search("*7.txt")}
    )
    args = ListDirectoryArgs(path="tree/d0/e0")
    await bench.compare(
        f"listing of {len(os.listdir(bench.root / 'tree/d0/e0'))} entries",
        50,
        {"list_directory": lambda: list_directory.run(args, bench.context())},
    )


async def memory(bench: Bench) -> None:
    print("\nmemory while reading (growth of the process's peak)")
    for size in (10, 100, 1000):
        make_large(bench.root / "big.txt", size)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.perf_counter()
        await read_file.run(ReadFileArgs(path="big.txt"), bench.context())
        first = time.perf_counter() - began
        began = time.perf_counter()
        await read_file.run(ReadFileArgs(path="big.txt", offset=65536 * size - 5), bench.context())
        last = time.perf_counter() - began
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        times = f"first page {first * 1e3:7.1f} ms, last lines {last * 1e3:8.1f} ms"
        print(f"  {size:5} MiB: {times}, {grown / 1024:6.1f} MiB")


def make_large(path: Path, mebibytes: int) -> None:
    with path.open("wb") as file:
        for _ in range(mebibytes):
            file.write(b"0123456789abcde\n" * 65536)


@contextlib.contextmanager
def workspace(where: str) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(dir=where, prefix="bench-files-") as home:
        bench = Bench(Path(home))
        yield bench
        bench.workspace.close()


async def main(where: str) -> None:
    with workspace(where) as bench:
        await memory(bench)
        await reads(bench)
        await writes(bench)
        await searches(bench)


if __name__ == "__main__":
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.install()
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "."))

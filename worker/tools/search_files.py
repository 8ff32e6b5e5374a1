"""search_files: names by a glob, or lines inside files by a regular expression."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from contracts.tools import SearchFilesArgs, SearchFilesOutput
from worker.failures import CallFailed
from worker.tools.context import ToolContext
from worker.tools.naming import naming
from worker.tools.ripgrep import Engine
from worker.tools.search_content import search_content
from worker.tools.search_names import search_names
from worker.tools.search_results import Results

BUDGET_S = 20.0
_MARGIN_S = 0.5
_PATIENCE_S = 2.0

_SEARCHES = ThreadPoolExecutor(max_workers=4, thread_name_prefix="search")
"""As many engines at a time as one worker runs; each is as parallel as the machine by itself."""


async def run(args: SearchFilesArgs, context: ToolContext) -> SearchFilesOutput:
    """The matches, ordered by path and line, with `truncated` and the reason if they are not all.

    Raises:
        CallFailed: invalid_call, not_found, wrong_kind, permission, unavailable.
    """
    if not args.pattern:
        raise CallFailed("invalid_call", "the pattern is empty")
    if "\0" in args.pattern:
        raise CallFailed("invalid_call", "the pattern holds a NUL")
    end = time.monotonic() + BUDGET_S
    if context.deadline is not None:
        end = min(end, context.deadline - _MARGIN_S)
    engine = Engine()

    def work() -> Results:
        with naming(args.path, context.workspace):
            spot = context.workspace.locate(args.path)
            search = search_content if args.content_search else search_names
            return search(context.workspace, spot, args, engine, max(end - time.monotonic(), 0.05))

    running = asyncio.get_running_loop().run_in_executor(_SEARCHES, work)
    try:
        results = await asyncio.shield(running)
    except asyncio.CancelledError:
        engine.stop()
        running.add_done_callback(lambda future: future.cancelled() or future.exception())
        await asyncio.wait({running}, timeout=_PATIENCE_S)
        raise
    if results.searched:
        context.opened.append(results.searched)
    context.opened += results.opened
    return SearchFilesOutput(
        matches=results.matches,
        total=results.total,
        truncated=results.reason is not None,
        reason=results.reason,
        warnings=results.warnings,
    )

"""The Lua scripts that Redis runs for us, read from `lua/` and called by their digest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Coroutine, Sequence
from importlib import resources
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from contracts import wire


def load_script(name: str) -> str:
    """A script's text with what it includes from `_<name>.lua` files.

    `--@include name` lines keep shared Lua in one place; Redis has no modules.
    """
    folder = resources.files("worker") / "lua"
    text = (folder / f"{name}.lua").read_text()
    return re.sub(r"--@include (\w+)\n", lambda found: (folder / f"_{found[1]}.lua").read_text(), text)


async def command(redis: Redis, *words: Any) -> Any:
    """One command as it stands. May raise redis.RedisError or OSError."""
    return await wire.execute(redis, *words)


class Script:
    """A script by its file's name; loaded where the server does not know it."""

    def __init__(self, name: str) -> None:
        self.text = load_script(name)
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def words(self, names: Sequence[str], argv: Sequence[Any]) -> tuple[Any, ...]:
        """The command that runs it, where the server knows it."""
        return ("EVALSHA", self.sha, len(names), *names, *argv)

    async def __call__(self, redis: Redis, names: Sequence[str], argv: Sequence[Any]) -> Any:
        """Runs it. May raise redis.RedisError or OSError."""
        return await self.begin(redis, names, argv)

    def begin(
        self, redis: Redis, names: Sequence[str], argv: Sequence[Any], then: Callable[[], None] | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Has it run, from now on; what comes back must be awaited, and may raise redis.RedisError or OSError.

        `then` is called once that is worth it.
        """
        words = self.words(names, argv)
        return self._answer(redis, words, wire.begin(redis, words, then))

    async def _answer(self, redis: Redis, words: Sequence[Any], sent: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await sent
        except NoScriptError:
            await redis.script_load(self.text)
            return await command(redis, *words)

"""The provisioner's side: the Redis user of one agent session is made on every server, and removed with the session."""

from __future__ import annotations

import hashlib
import re
import secrets
from itertools import groupby
from typing import Any, Self
from urllib.parse import quote

from msgspec import Struct
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from contracts.acl import rules
from contracts.calls import check_name
from contracts.connection import connect_each

_USER_LINE = re.compile(r"\([^)]*\)|\S+")


class AgentUser(Struct, frozen=True):
    """An agent's Redis user. The password stands nowhere else: Redis keeps its hash."""

    user: str
    password: str
    servers: int

    def __repr__(self) -> str:
        return f"AgentUser({self.user!r}, on {self.servers} servers)"


def agent_user(queue: str, session: str) -> str:
    """The name of a session's Redis user."""
    return f"agent:{check_name('queue', queue)}:{check_name('session', session)}"


class Provisioner:
    """Makes and removes agents' users on all servers behind a URL, with the provisioner's Redis user.

    Users are no part of what Redis replicates. A server that is away gets those it has missed, by `copy_agents`.
    """

    def __init__(self, servers: list[Redis], queue: str) -> None:
        self._servers: list[Any] = list(servers)
        self._queue = check_name("queue", queue)

    @classmethod
    async def connect(cls, url: str, *, queue: str = "default") -> Self:
        """Finds the servers.

        Raises:
            ValueError: the URL can't be read.
            redis.RedisError, OSError: nobody knows the servers just now.
        """
        return cls(await connect_each(url), queue)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self._servers:
            await each.aclose()

    async def make_agent(self, session: str) -> AgentUser:
        """A user for the session, with a new password; one that it had before is worth nothing any more.

        Raises:
            redis.RedisError, OSError: a server refused or is away. Nobody knows the password, so none can log in.
        """
        user, password = agent_user(self._queue, session), secrets.token_urlsafe(32)
        digest = hashlib.sha256(password.encode()).hexdigest()
        words = (*rules("agent", [self._queue], session), "on", f"#{digest}")
        for each in self._servers:
            # Made under its full rules at once: SETUSER takes all of its words or none.
            await each.execute_command("ACL", "SETUSER", user, *words)
            await _save(each)
        return AgentUser(user, password, len(self._servers))

    async def remove_agent(self, session: str) -> bool:
        """Removes the session's user, and ends its connections. False if no server knew it.

        Raises:
            redis.RedisError, OSError: a server refused or is away; it may know the user still.
        """
        user, removed = agent_user(self._queue, session), 0
        for each in self._servers:
            removed += await each.execute_command("ACL", "DELUSER", user)
            await _save(each)
        return removed > 0

    async def has_agent(self, session: str) -> bool:
        """Whether every server knows the session's user."""
        user = agent_user(self._queue, session)
        known = [await each.execute_command("ACL", "GETUSER", user) is not None for each in self._servers]
        return all(known)

    async def copy_agents(self) -> int:
        """Brings the agents' users that some server has to those that lack them. Returns how many were brought.

        To be called after a failover or when a server comes back, since users may have been made meanwhile. Where two
        servers differ, the first one is right, which is the primary. Users that were removed meanwhile are removed by
        closing their sessions again.

        Raises:
            redis.RedisError, OSError: a server refused or is away.
        """
        held = [await _agents_of(each) for each in self._servers]
        wanted = {user: words for each in reversed(held) for user, words in each.items()}
        copied = 0
        for server, have in zip(self._servers, held, strict=True):
            for user, words in wanted.items():
                if have.get(user) != words:
                    await server.execute_command("ACL", "SETUSER", user, "reset", *words)
                    copied += 1
            await _save(server)
        return copied


async def _agents_of(server: Any) -> dict[str, list[str]]:
    lines = [line.decode() for line in await server.execute_command("ACL", "LIST")]
    named = [_USER_LINE.findall(line)[1:] for line in lines]
    return {user: _in_one_order(words) for user, *words in named if user.startswith("agent:")}


def _in_one_order(words: list[str]) -> list[str]:
    """The same rules, the same list: Redis 7.0 names a user's commands in an order that each server has for itself.

    Only neighbours of one sign are sorted: a `+` and a `-` mean something else the other way round.
    """
    plain = [f"({' '.join(_in_one_order(word[1:-1].split()))})" if word[0] == "(" else word for word in words]
    return [word for _, run in groupby(plain, key=lambda word: word[0]) for word in sorted(run)]


async def _save(server: Any) -> None:
    """Writes the users to the server's ACL file, where it has one."""
    try:
        await server.execute_command("ACL", "SAVE")
    except ResponseError as error:
        if "not configured to use an ACL file" not in str(error):
            raise


def with_login(url: str, user: str, password: str) -> str:
    """The URL with another user's login."""
    scheme, separator, rest = url.partition("://")
    end = next((place for place, letter in enumerate(rest) if letter in "/?"), len(rest))
    if scheme == "unix":
        # What precedes the path is the login alone.
        end = max(rest.find("@"), 0)
        hosts = rest[end:].removeprefix("@")
    else:
        hosts = rest[:end].rpartition("@")[2] + rest[end:]
    return f"{scheme}{separator}{quote(user, safe='')}:{quote(password, safe='')}@{hosts}"

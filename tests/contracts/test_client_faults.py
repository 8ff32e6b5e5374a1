"""The client where Redis refuses it, does not answer it, or holds what it can't read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from contracts import keys, streams, wire
from contracts.client import Client
from contracts.connection import connect
from contracts.replies import Completed, Failed
from tests.fleet import Agent, Fleet, run_async, serve, wait_until

MakeFleet = Callable[..., Fleet]
HERE = {"path": "."}


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Fleet]:
    """A fleet with a worker and a server of its own."""
    with serve(tmp_path) as server:
        fleet = Fleet(server.url, tmp_path, "alone")
        try:
            fleet.start_worker()
            yield fleet
        finally:
            fleet.end()


def test_a_call_is_never_given_the_reply_of_another_that_has_its_id(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    fleet.start_worker()
    agent = fleet.agent()

    async def act(client: Client) -> set[tuple[type, str]]:
        told: set[tuple[type, str]] = set()
        for number in range(200):
            first = asyncio.create_task(client.call("list_directory", HERE, session=agent.session, call_id=str(number)))
            # From before the first is answered until after.
            await asyncio.sleep(number % 50 * 0.0001)
            other = await client.call("read_file", HERE, session=agent.session, call_id=str(number), timeout_s=20)
            assert isinstance(await first, Completed)
            assert isinstance(other, Failed)
            assert other.error is not None
            told.add((type(other), other.error.code))
        return told

    assert agent.with_client(act) == {(Failed, "conflict_call_id")}


def test_who_joins_while_redis_takes_no_more_connections_asks_seldom(alone: Fleet) -> None:
    async def main() -> Any:
        async with Client.connect(f"{alone.url}?client_name=joins", queue=alone.queue) as client:
            await client.call("list_directory", HERE, session="a", timeout_s=20)
            admin = alone.redis
            admin.config_set("maxclients", len(admin.client_list()))
            before = admin.info("stats")["rejected_connections"]
            joining = asyncio.create_task(client.call("list_directory", HERE, session="b", timeout_s=20))
            await asyncio.wait({joining}, timeout=1.5)
            refused = admin.info("stats")["rejected_connections"] - before
            admin.config_set("maxclients", 1000)
            return refused, await joining

    refused, reply = run_async(main)
    assert 1 <= refused < 50
    assert isinstance(reply, Completed)


@asynccontextmanager
async def deaf_once(socket: str, when: int) -> AsyncIterator[str]:
    """The URL of a way to a server on which one connection, counted from 1, is taken and never answered."""
    seen, writers = 0, []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def come(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        seen += 1
        writers.append(writer)
        if seen != when:
            there, back = await asyncio.open_unix_connection(socket)
            writers.append(back)
            await asyncio.gather(copy(reader, back), copy(there, writer), return_exceptions=True)

    server = await asyncio.start_server(come, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0?client_name=x"
    finally:
        server.close()
        for each in writers:
            each.close()
            await asyncio.sleep(0)


def test_a_login_that_is_never_answered_is_given_up_once_for_all(alone: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "LOGIN_TIMEOUT_S", 0.5)

    async def main() -> Any:
        async with deaf_once(str(alone.state / "r.sock"), 1) as url, Client.connect(url, queue="alone") as client:
            tries = [client.submit("list_directory", HERE, session="s") for _ in range(8)]
            # In turn they would take eight times as long.
            ends = await asyncio.wait_for(asyncio.gather(*tries, return_exceptions=True), 3)
            return ends, await client.call("list_directory", HERE, session="s", timeout_s=20)

    ends, reply = run_async(main)
    assert [type(end) for end in ends] == [RedisTimeoutError] * 8
    assert isinstance(reply, Completed)


def test_a_read_whose_login_is_never_answered_begins_anew(alone: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "LOGIN_TIMEOUT_S", 0.5)

    async def main() -> Any:
        async with deaf_once(str(alone.state / "r.sock"), 2) as url, Client.connect(url, queue="alone") as client:
            return await client.call("list_directory", HERE, session="s", timeout_s=20)

    assert isinstance(run_async(main), Completed)


def test_what_cannot_be_sent_is_refused_and_nobody_else_is_answered_wrongly(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()

    async def main() -> Any:
        redis = connect(fleet.url)
        try:
            assert await wire.execute(redis, "ECHO", "first") == b"first"
            asked = (wire.execute(redis, "ECHO", word) for word in ("one", "\udc80", "two", "three"))
            return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 20)
        finally:
            wire.close(redis)
            await redis.aclose()

    one, refused, two, three = run_async(main)
    assert (one, two, three) == (b"one", b"two", b"three")
    assert isinstance(refused, UnicodeEncodeError)


def test_an_outcome_that_cannot_be_read_ends_its_own_wait_alone(
    make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "BLOCK_MS", 100)
    fleet = make_fleet()
    agent = fleet.agent()

    async def act(client: Client) -> Any:
        # More than are looked for at once come before it.
        names = [f"never-{number}" for number in range(streams.LOOK_AT_ONCE + 10)]
        never = [asyncio.create_task(client.wait(agent.session, name)) for name in names]
        newer, trimmed = (asyncio.create_task(client.wait(agent.session, name)) for name in ("newer", "trimmed"))
        await asyncio.sleep(0.3)
        failed = b'{"kind":"failed","v":1,"session":"s","call":"trimmed","tool":"x"}'
        fleet.redis.set(keys.done(fleet.queue, agent.session, "newer"), b'd 0-0 {"kind":"newer","v":2}', px=60_000)
        fleet.redis.set(keys.done(fleet.queue, agent.session, "trimmed"), b"d 0-0 " + failed, px=60_000)
        with pytest.raises(ValueError, match="newer"):
            await asyncio.wait_for(newer, 20)
        reply = await asyncio.wait_for(trimmed, 20)
        assert not any(each.done() for each in never)
        await client.close()
        ends = await asyncio.gather(*never, return_exceptions=True)
        return reply, {type(end) for end in ends}

    reply, ends = agent.with_client(act)
    assert (type(reply), reply.call) == (Failed, "trimmed")
    assert ends == {RedisConnectionError}


@pytest.mark.parametrize("option", ["decode_responses=true", "protocol=3"])
def test_options_of_the_url_change_nothing_of_what_is_read(make_fleet: MakeFleet, option: str) -> None:
    fleet = make_fleet()
    fleet.start_worker(url=f"{fleet.url}?{option}")
    agent = fleet.agent()

    async def main() -> Any:
        async with Client.connect(f"{fleet.url}?{option}", queue=fleet.queue) as client:
            calls = client.call(
                "run_command", {"command": "sleep 60"}, session=agent.session, call_id="c", timeout_s=20
            )
            running = asyncio.create_task(calls)
            await asyncio.to_thread(started, agent)
            await client.cancel(agent.session, "c")
            return await running, [reply async for reply in client.replies(agent.session)]

    reply, listed = run_async(main)
    assert isinstance(reply, Failed)
    assert reply.error is not None
    assert reply.error.code == "cancelled"
    assert [each for _, each in listed] == [reply]


def started(agent: Agent) -> None:
    """Returns once the agent's call is in a worker's hands."""
    key = keys.in_progress(agent.fleet.queue, agent.session, "c")
    wait_until(lambda: agent.fleet.redis.exists(key), "the call to be claimed")


@pytest.mark.parametrize("way", ["redis+sentinel://h:1/m", "redis+cluster://h:1", "redis://h:1"])
def test_no_url_has_texts_in_place_of_bytes(way: str) -> None:
    options = connect(f"{way}?decode_responses=true", queue="q").connection_pool.connection_kwargs
    assert not options.get("decode_responses", False)

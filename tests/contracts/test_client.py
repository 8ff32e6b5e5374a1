"""The client's waits: when they end, what they read over, and what is left when nobody waits any more."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from contracts import keys, streams
from contracts.client import Client, Submitted
from contracts.replies import Completed, Failed
from tests.fleet import Agent, Fleet, serve, wait_until

MakeFleet = Callable[..., Fleet]


def reading(fleet: Fleet) -> int:
    """How many connections the server holds blocked in a read of replies."""
    return sum(each["cmd"] == "xread" and "b" in each["flags"] for each in fleet.redis.client_list())


async def timed_out(client: Client, agent: Agent, timeout_s: float, ended: list[float] | None = None) -> None:
    """A call that nobody answers gives up, not before its time. `ended` gets the times in the order of the ends."""
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await client.call("list_directory", {"path": "."}, session=agent.session, timeout_s=timeout_s)
    assert time.monotonic() - began >= timeout_s
    if ended is not None:
        ended.append(timeout_s)


def test_each_wait_ends_at_its_own_time_and_can_be_taken_up_again(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    agent = fleet.agent()

    async def act(client: Client) -> tuple[list[float], Any]:
        pushed = asyncio.create_task(
            client.call("list_directory", {"path": "."}, session=agent.session, call_id="first", timeout_s=0.2)
        )
        # The shorter ones begin later, and one has no end.
        times: list[float] = []
        await asyncio.gather(*(timed_out(client, agent, each, times) for each in (0.9, 0.3, 0.6)))
        with pytest.raises(TimeoutError):
            await pushed
        endless = asyncio.create_task(client.call("list_directory", {"path": "."}, session=agent.session))
        await asyncio.to_thread(fleet.start_worker)
        assert isinstance(await endless, Completed)
        return times, await client.wait(agent.session, "first", timeout_s=10)

    times, reply = agent.with_client(act)
    assert times == [0.3, 0.6, 0.9]
    assert isinstance(reply, Completed)


@pytest.mark.parametrize("prepared", [False, True])
def test_a_wait_ends_while_redis_does_not_answer(tmp_path: Path, prepared: bool) -> None:
    with serve(tmp_path) as server:
        fleet = Fleet(server.url, tmp_path, "frozen")
        fleet.start_worker()
        agent = fleet.agent()
        process = server.process
        assert process is not None

        async def act(client: Client) -> Any:
            if prepared:
                await client.call("list_directory", {"path": "."}, session=agent.session)
            else:
                await client.is_served()
            process.send_signal(signal.SIGSTOP)
            try:
                # By its own time: a connection gives up on its answers only later, and not by a TimeoutError.
                await timed_out(client, agent, 0.4)
            finally:
                process.send_signal(signal.SIGCONT)
            return await client.call("list_directory", {"path": "."}, session=agent.session, timeout_s=10)

        try:
            reply = agent.with_client(act)
        finally:
            fleet.end()
    assert isinstance(reply, Completed)


def test_what_redis_did_not_take_as_new_is_settled_by_the_call_itself(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    fleet.start_worker()
    agent = fleet.agent()

    async def act(client: Client) -> list[Any]:
        async def call(command: str) -> Any:
            args = {"command": command}
            return await client.call("run_command", args, session=agent.session, call_id="once", timeout_s=20)

        # In this order: the second finds the first under way.
        first = asyncio.create_task(call("while [ ! -e go ]; do sleep 0.02; done; echo x >> log; cat log"))
        await asyncio.to_thread(wait_until, agent.workspace.exists, "the first to start")
        under_way = await call("while [ ! -e go ]; do sleep 0.02; done; echo x >> log; cat log")
        other = await call("true")
        (agent.workspace / "go").touch()
        return [
            under_way,
            other,
            await first,
            await call("while [ ! -e go ]; do sleep 0.02; done; echo x >> log; cat log"),
        ]

    under_way, other, first, again = agent.with_client(act)
    assert [isinstance(each, Failed) and each.error and each.error.code for each in (under_way, other)] == [
        "in_flight",
        "conflict_call_id",
    ]
    assert isinstance(first, Completed)
    assert first.output["stdout"] == "x\n"
    assert again == first


def test_sessions_join_while_others_wait(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    fleet.start_worker()
    agents = [fleet.agent() for _ in range(12)]
    hold = {"command": "while [ ! -e go ]; do sleep 0.02; done; cat go"}

    async def act(client: Client) -> list[Any]:
        calls = []
        for agent in agents:
            calls.append(asyncio.create_task(client.call("run_command", hold, session=agent.session, timeout_s=20)))
            await asyncio.to_thread(wait_until, agent.workspace.exists, "its command to start")
        assert not any(each.done() for each in calls)
        # One read for all, however many have joined it.
        seen = reading(fleet)
        for number, agent in enumerate(agents):
            # Whole at once: a command may read between the file's opening and its text.
            (agent.workspace / "text").write_text(str(number))
            (agent.workspace / "text").rename(agent.workspace / "go")
        return [seen, *(reply.output["stdout"] for reply in await asyncio.gather(*calls))]

    assert agents[0].with_client(act) == [1, *map(str, range(12))]


def test_it_reads_on_for_a_while_and_then_no_more(make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "WATCH_LIFE_S", 0.6)
    monkeypatch.setattr(streams, "BLOCK_MS", 200)
    fleet = make_fleet()
    fleet.start_worker()
    agent = fleet.agent()

    async def act(client: Client) -> bool:
        for _ in range(2):
            reply = await client.call("list_directory", {"path": "."}, session=agent.session, timeout_s=10)
            assert isinstance(reply, Completed)
            await asyncio.to_thread(wait_until, lambda: reading(fleet) == 1, "it to read on")
            await asyncio.to_thread(wait_until, lambda: reading(fleet) == 0, "it to read no more")
        return bool(fleet.redis.exists(keys.replies(fleet.queue, agent.session)))

    assert agent.with_client(act)


def test_who_waits_is_told_that_the_client_was_closed(make_fleet: MakeFleet) -> None:
    agent = make_fleet().agent()

    async def act(_: Client) -> list[BaseException | Any]:
        client = Client.connect(agent.fleet.url, queue=agent.fleet.queue)
        args: dict[str, Any] = {"path": "."}
        waits = [
            asyncio.create_task(client.call("list_directory", args, session=agent.session, timeout_s=30)),
            asyncio.create_task(client.call("list_directory", args, session=agent.session, call_id="endless")),
        ]
        queue = keys.queue(agent.fleet.queue)
        await asyncio.to_thread(wait_until, lambda: agent.fleet.redis.zcard(queue) == 2, "the calls to be pushed")
        await client.close()
        return await asyncio.gather(*waits, return_exceptions=True)

    ends = agent.with_client(act)
    assert [(type(end), str(end)) for end in ends] == [(RedisConnectionError, "the client was closed")] * 2


def test_a_closed_client_ends_all_that_is_under_way_or_begins_later_and_leaves_no_connection(
    make_fleet: MakeFleet,
) -> None:
    agent = make_fleet().agent()

    def connected(name: str, times: int) -> bool:
        return len([each for each in agent.fleet.redis.client_list() if each["name"] == name]) == times

    async def follow(client: Client, session: str) -> None:
        async for _ in client.replies(session, follow=True):
            pass

    def begin(client: Client, session: str) -> list[asyncio.Task[Any]]:
        args: dict[str, Any] = {"path": "."}
        doing = (
            client.call("list_directory", args, session=session),
            client.wait(session, "nobody"),
            client.submit("list_directory", args, session=session),
            follow(client, session),
            client.now_ms(),
        )
        return [asyncio.create_task(each) for each in doing]

    async def act(_: Client) -> None:
        for turns in range(24):
            name = f"closed-{turns}"
            url = f"{agent.fleet.url}?client_name={name}"
            client = Client.connect(url, queue=agent.fleet.queue)
            session = agent.fleet.agent().session

            tasks = begin(client, session)
            if turns % 2:
                await asyncio.to_thread(wait_until, partial(connected, name, 3), "it to be connected")
                tasks += begin(client, session)
            # Closed at another point of their ways each time.
            for _turn in range(turns // 2):
                await asyncio.sleep(0)
            closing = asyncio.create_task(client.close())
            tasks += begin(client, session)
            await closing
            tasks += begin(client, session)
            ends = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)
            # These may have been through before.
            told = [end for end in ends if not isinstance(end, Submitted | int)]
            assert [type(end) for end in told] == [RedisConnectionError] * len(told), told
            assert [type(end) for end in ends[-5:]] == [RedisConnectionError] * 5
            await asyncio.to_thread(wait_until, partial(connected, name, 0), "its connections to end")

    agent.with_client(act)

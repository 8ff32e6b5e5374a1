"""Moments at which tests strike, and how to tell what became of a call: seen from outside, in streams and files."""

from __future__ import annotations

import hashlib
import signal
import threading

from tests.fleet import Agent, Fleet, Server, Worker, wait_until
from worker.scripts import load_script

UNTIL_GO = "echo +{0} >> log; touch begun; while [ ! -e go ]; do sleep 0.02; done; echo -{0} >> log"


def sha_of(script: str) -> bytes:
    """What stands in the command that runs a script."""
    return hashlib.sha1(load_script(script).encode()).hexdigest().encode()


def came(event: threading.Event, what: str) -> None:
    """Waits for a moment on the wire."""
    assert event.wait(60), what


def begin(agent: Agent, call: str) -> None:
    """An effect that runs until `end`."""
    agent.push(call, "run_command", {"command": UNTIL_GO.format(call)})
    wait_until((agent.workspace / "begun").exists, "the effect to start")


def end(agent: Agent) -> None:
    """Lets the effect come to its end."""
    (agent.workspace / "go").touch()


def beat(agent: Agent, call: str) -> str:
    """An effect that shows that it runs. Its job id."""
    job_id = agent.push(call, "run_command", {"command": "touch begun; while :; do touch beat; sleep 0.02; done"})
    wait_until((agent.workspace / "begun").exists, "the effect to start")
    return job_id


def is_still(agent: Agent) -> bool:
    """Whether no such effect runs any more."""
    sign = agent.workspace / "beat"
    sign.unlink(missing_ok=True)
    return not threading.Event().wait(0.5) and not sign.exists()


def outcomes(agent: Agent, count: int) -> list[tuple[str, str]]:
    """(call, kind or error code) of the terminal replies, once there are so many."""
    replies = agent.fleet.wait_replies(agent.session, count, 60)
    return [(reply["call"], reply["error"]["code"] if reply["error"] else reply["kind"]) for reply in replies]


def ran(agent: Agent) -> list[str]:
    """What the commands left behind."""
    return (agent.workspace / "log").read_text().split()


def assert_well(worker: Worker, agent: Agent) -> None:
    """The worker lives, complains of nothing unforeseen, and takes calls of the same session."""
    assert agent.complete("run_command", command="echo well")["stdout"] == "well\n"
    assert worker.process.poll() is None
    assert "Traceback" not in worker.log.read_text()


def restart(server: Server, fleet: Fleet, number: signal.Signals = signal.SIGKILL) -> None:
    """Ends the server and starts it on what it left."""
    server.kill(number)
    server.start()
    fleet.redis.connection_pool.disconnect()


def now_ms(fleet: Fleet) -> float:
    """Redis' clock."""
    seconds, micros = fleet.redis.time()
    return float(seconds * 1000 + micros / 1000)

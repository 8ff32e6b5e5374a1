"""Secrets by the public entry: used without being seen, and in nothing that leaves."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts import keys
from contracts.levels import Level
from contracts.replies import Completed, Failed
from tests.fleet import Agent, Fleet, serve, wait_until
from worker.secrets.placeholders import NotGiven, SecretStore, read_secret_tools

VALUE = "s3cr3t/value+with=marks"
OTHER = "another-value-nobody-gets"
REDIS_PASSWORD = "the-redis-password-of-tests"


@pytest.fixture(scope="module")
def keeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet with two secrets, one of which commands may use, on a Redis with a password."""
    state = tmp_path_factory.mktemp("keeping")
    (state / "secrets").write_text(f"api={VALUE}\nother={OTHER}\n")
    with serve(state) as server:
        fleet = Fleet(server.url, state, "keeping", secrets_file=state / "secrets", secret_tools="api=run_command")
        fleet.redis.execute_command("ACL", "SETUSER", "w", "on", f">{REDIS_PASSWORD}", "~*", "&*", "+@all")
        fleet.start_worker(url=f"unix://w:{REDIS_PASSWORD}@{server.socket}")
        yield fleet
        fleet.end()


@pytest.fixture
def agent(keeping: Fleet) -> Agent:
    return keeping.agent()


def test_a_command_uses_a_secret_that_it_is_given_and_the_answer_has_none_of_it(keeping: Fleet, agent: Agent) -> None:
    check = 'test "$(printf %s {{secret:api}} | sha256sum)" = "$(printf %s "$WANT" | sha256sum)" && echo same'
    want = base64.b64encode(VALUE.encode()).decode()
    command = f"WANT=$(echo {want[:8]}; echo {want[8:]}) ; WANT=$(echo $WANT | tr -d ' ' | base64 -d); {check}"
    reply = agent.call("run_command", command=command)
    assert isinstance(reply, Completed)
    assert reply.output["stdout"] == "same\n"
    by_file = 'cmp {{secret-file:api}} <(printf %s "${TOOLREEF_SECRET_API}") && echo same'
    assert agent.complete("run_command", command=by_file)["stdout"] == "same\n"
    assert agent.complete("run_command", command="echo ${TOOLREEF_SECRET_API-unset}")["stdout"] == "unset\n"
    reply = agent.call("run_command", command='echo "{{secret:api}}"; echo "{{secret:api}}" >&2; exit 3')
    assert (reply.output["stdout"], reply.output["stderr"]) == ("[redacted:api]\n", "[redacted:api]\n")
    assert reply.level is Level.RESTRICTED


@pytest.mark.parametrize(
    "command",
    ["echo {{secret:other}}", "echo {{secret:nobody}}", "echo '{{secret-file:other}}'", "echo {{secret: api}}"],
)
def test_what_no_tool_is_given_is_refused_without_telling_whether_it_exists(agent: Agent, command: str) -> None:
    error = agent.deny("run_command", command=f"touch ran; {command}")
    assert (error.policy, error.rule, error.effect) == ("secret_use", "not_given", "none")
    assert "is not a secret that this tool may use" in error.message
    assert not (agent.workspace / "ran").exists()


def test_other_tools_take_a_placeholder_for_text(agent: Agent) -> None:
    agent.complete("write_file", path="a", content="{{secret:api}}")
    assert agent.complete("read_file", path="a")["text"] == "{{secret:api}}"


def test_while_a_command_has_it_no_argument_of_any_process_has(keeping: Fleet, agent: Agent) -> None:
    agent.push("slow", "run_command", {"command": "x={{secret:api}}; touch up; until [ -e go ]; do sleep 0.05; done"})
    wait_until((agent.workspace / "up").exists, "the command to run")
    shown = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    (agent.workspace / "go").touch()
    assert "until [ -e go ]" in shown
    assert VALUE not in shown
    keeping.wait_replies(agent.session, 1)


def test_a_secret_leaves_in_no_way_that_tools_print(keeping: Fleet, agent: Agent) -> None:
    agent.complete("write_file", path="conf", content=f"a={VALUE}\npassword={REDIS_PASSWORD}\nend\n")
    half = len(VALUE) // 2
    for tool, args in (
        ("read_file", {"path": "conf"}),
        ("search_files", {"path": ".", "pattern": "=", "content_search": True}),
        ("run_command", {"command": "cat conf; base64 -w0 conf; xxd -p conf | tr -d '\\n'; cat conf >&2"}),
        ("run_command", {"command": f"printf %s {VALUE[:half]}; sleep 0.2; printf '%s\\n' {VALUE[half:]}"}),
        ("run_command", {"command": f"echo {VALUE}; exit 1"}),
        ("run_command", {"command": f"echo {VALUE}; sleep 9", "timeout_s": 0.5}),
        ("edit_file", {"path": "conf", "old_text": "end", "new_text": f"{VALUE} end"}),
        ("write_file", {"path": "conf", "content": VALUE, "dry_run": True}),
        ("read_file", {"path": f"none-{VALUE.replace('/', '-')}/{VALUE}"}),
        ("run_command", {"command": f"sudo {VALUE}"}),
    ):
        agent.call(tool, args)
    told = [fields for _, fields in keeping.redis.xrange(keys.replies(keeping.queue, agent.session))]
    told += [fields for _, fields in keeping.redis.xrange(keys.audit(keeping.queue))]
    files = [*(keeping.state / "audit").iterdir(), *keeping.state.glob("*.log")]
    text = repr(told).encode() + b"".join(path.read_bytes() for path in files)
    for value in (VALUE, OTHER, REDIS_PASSWORD):
        for form in (value, base64.b64encode(value.encode()).decode()[4:-6], value.encode().hex()):
            assert form.encode() not in text, form
    assert b"[redacted:redis-url-password]" in text


def test_an_error_that_cant_be_explained_tells_no_secret_in_the_log(keeping: Fleet, agent: Agent) -> None:
    keeping.redis.hset(keys.session(keeping.queue, agent.session), "workspace", f"x {VALUE}")
    reply = agent.call("read_file", path="a")
    assert isinstance(reply, Failed)
    assert VALUE not in msgspec.json.encode(reply).decode()
    assert all(VALUE.encode() not in path.read_bytes() for path in keeping.state.glob("*.log"))


def test_settings_that_cant_be_used_are_told_without_the_value(tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text("short=abc\n")
    fleet = Fleet("unix:///nowhere", tmp_path, "q", secrets_file=tmp_path / "secrets")
    done = fleet.run("worker")
    assert (done.returncode, b"TOOLREEF_SECRETS_FILE" in done.stderr, b"abc" in done.stderr) == (2, True, False)
    (tmp_path / "secrets").write_text("")
    done = fleet.run("worker", env={"TOOLREEF_SECRET_TOOLS": "api=run_command"})
    assert (done.returncode, b"there is no secret api" in done.stderr) == (2, True)


def test_a_store_gives_what_it_was_told_to_give() -> None:
    store = SecretStore({"a-b": "1", "c": "2"}, read_secret_tools(" a-b=run_command+exec.run , c=exec.run"))
    script, env = store.resolve("run_command", "x {{secret:a-b}} y {{secret-file:a-b}}")
    name = "TOOLREEF_SECRET_A_B"
    assert (script, env) == (f'x ${{{name}}} y <(printf %s "${{{name}}}")', {name: "1"})
    assert store.resolve("run_command", "plain {{x}}") == ("plain {{x}}", {})
    for text in ("{{secret:c}}", "{{secret}}", "{{secret:}}", "{{secret:a-b", "{{{secret:a-b}} {{secret:x y}}"):
        with pytest.raises(NotGiven):
            store.resolve("run_command", text)
    with pytest.raises(ValueError, match="one variable"):
        SecretStore({"a-b": "1", "a.b": "2"}, {"a-b": frozenset({"t"}), "a.b": frozenset({"t"})})
    for bad in ("a", "a=", "=run_command"):
        with pytest.raises(ValueError, match="not name=tool"):
            read_secret_tools(bad)


def test_nothing_is_given_by_default() -> None:
    nothing: Any = SecretStore()
    with pytest.raises(NotGiven):
        nothing.check("run_command", "{{secret:a}}")


def test_what_is_spilled_to_a_file_has_no_secret_either(agent: Agent) -> None:
    command = 'seq 1 200000 > all; head -c 600000 all; echo "{{secret:api}}"; tail -c 600000 all'
    output = agent.complete("run_command", command=command)
    spilled = (agent.workspace / output["spill"]).read_text()
    assert VALUE not in spilled
    whole = (agent.workspace / "all").read_text()
    assert spilled == f"{whole[:600000]}[redacted:api]\n{whole[-600000:]}"
    agent.call("run_command", command=f"{command}; sleep 9", timeout_s=1)
    spills = list((agent.workspace / output["spill"]).parent.iterdir())
    assert len(spills) == 2
    assert all(VALUE not in path.read_text() for path in spills)

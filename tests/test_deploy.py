"""The deployment's parts: Redis started by its script on its configuration, the passwords, the compose file."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from contracts.acl import ROLES, rules
from worker.cgroups import CONTROLLERS
from worker.commands.serve import SANDBOX_UNAVAILABLE
from worker.embedded import locate_server
from worker.settings import read_settings

DEPLOY = Path(__file__).parents[1] / "deploy"


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets"
    folder.mkdir()
    for role in ROLES:
        (folder / f"redis_{role}").write_text(f"secret of {role}\n")
    return folder


@contextlib.contextmanager
def started(folder: Path, secrets: Path) -> Iterator[Path]:
    """The server as deploy/redis/start.sh starts it, on a Unix socket instead of its port."""
    (folder / "bin").mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (folder / "bin" / "redis-server").symlink_to(locate_server())
    (folder / "data").mkdir(exist_ok=True)
    environment = {
        "PATH": f"{folder}/bin:{os.defpath}",
        "USERS_TEMPLATE": str(DEPLOY / "redis/users.acl"),
        "REDIS_CONFIG": str(DEPLOY / "redis/redis.conf"),
        "SECRETS": str(secrets),
        "DATA": f"{folder}/data",
    }
    process = subprocess.Popen(
        ["sh", DEPLOY / "redis/start.sh", "--port", "0", "--unixsocket", f"{folder}/sock"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line.decode())
            if "ready to accept connections" in said[-1].lower():
                break
        else:
            pytest.fail("".join(said))
        yield folder / "sock"
    finally:
        process.terminate()
        process.communicate()


def user(socket: Path, role: str, password: str | None = None) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(socket), username=role, password=password or f"secret of {role}")


def test_redis_starts_with_each_roles_password_and_nobody_else(tmp_path: Path, secrets: Path) -> None:
    with started(tmp_path, secrets) as socket:
        for role in ROLES:
            with user(socket, role) as connection:
                assert connection.ping() is True
        for stranger in (redis.Redis(unix_socket_path=str(socket)), user(socket, "agent", "wrong")):
            with stranger, pytest.raises(redis.AuthenticationError):
                stranger.ping()
    assert stat.S_IMODE((tmp_path / "data/users.acl").stat().st_mode) == 0o600
    assert "secret of" not in (tmp_path / "data/users.acl").read_text()


def test_provisioned_users_and_data_outlive_a_restart_and_passwords_can_change(tmp_path: Path, secrets: Path) -> None:
    with started(tmp_path, secrets) as socket:
        with user(socket, "provisioner") as connection:
            words = ("ACL", "SETUSER", "agent-s1", *rules("agent", ["default"], "s1"), "on", ">of s1")
            connection.execute_command(*words)
            connection.execute_command("ACL", "SAVE")
        with user(socket, "agent-s1", "of s1") as agent:
            assert agent.set("arq:job:{default}:s1:c1", "x", nx=True, px=60_000) is True
    (secrets / "redis_worker").write_text("another")
    with started(tmp_path, secrets) as socket:
        with user(socket, "agent-s1", "of s1") as agent:
            assert agent.get("arq:job:{default}:s1:c1") == b"x"
            with pytest.raises(redis.exceptions.NoPermissionError):
                agent.get("arq:job:{default}:s2:c1")
        with user(socket, "worker", "another") as worker:
            assert worker.ping() is True
        with user(socket, "worker") as old, pytest.raises(redis.AuthenticationError):
            old.ping()


def test_a_missing_or_empty_secret_stops_the_start(tmp_path: Path, secrets: Path) -> None:
    (secrets / "redis_approver").write_text("")
    with pytest.raises(pytest.fail.Exception, match="redis_approver is missing or empty"), started(tmp_path, secrets):
        pass
    (secrets / "redis_approver").unlink()
    with pytest.raises(pytest.fail.Exception, match="redis_approver is missing or empty"), started(tmp_path, secrets):
        pass


def test_the_configuration_keeps_what_the_promise_needs(tmp_path: Path, secrets: Path) -> None:
    lines = [line.split(maxsplit=1) for line in (DEPLOY / "redis/redis.conf").read_text().splitlines() if line]
    settings = {words[0]: words[1] for words in lines if not words[0].startswith("#") and len(words) == 2}
    assert (settings["appendonly"], settings["appendfsync"]) == ("yes", "always")
    assert (settings["maxmemory-policy"], settings["save"]) == ("noeviction", '""')
    with started(tmp_path, secrets):
        assert (tmp_path / "data/appendonlydir").is_dir()


def test_secrets_are_made_once_and_are_random(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY / "redis", tmp_path / "redis")
    shutil.copy(DEPLOY / "secrets.sh", tmp_path / "secrets.sh")
    subprocess.run([tmp_path / "secrets.sh"], check=True, capture_output=True)
    made = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert set(made) == {f"redis_{role}" for role in ROLES}
    assert len(set(made.values())) == len(ROLES)
    assert all(len(password) == 48 for password in made.values())
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    subprocess.run([tmp_path / "secrets.sh"], check=True, capture_output=True)
    assert made == {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}


def test_the_compose_file_names_what_exists() -> None:
    compose: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert compose["secrets"] == {f"redis_{role}": {"file": f"./secrets/redis_{role}"} for role in ROLES}
    assert set(compose["services"]["redis"]["secrets"]) == set(compose["secrets"])
    for service in compose["services"].values():
        assert set(service["secrets"]) <= set(compose["secrets"])
        assert set(service["networks"]) <= set(compose["networks"])
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (DEPLOY / source).is_dir()
    assert (DEPLOY.parent / compose["services"]["worker"]["build"]["dockerfile"]).is_file()


def test_the_entrypoint_makes_the_url_from_the_secret(tmp_path: Path) -> None:
    (tmp_path / "toolreef").write_text('#!/bin/sh\necho "$REDIS_URL" "$@"\n')
    (tmp_path / "toolreef").chmod(0o755)
    (tmp_path / "secret").write_text("abc\n")
    environment = {"PATH": f"{tmp_path}:{os.defpath}", "REDIS_PASSWORD_FILE": f"{tmp_path}/secret"}
    said = subprocess.run(
        ["sh", DEPLOY / "entrypoint.sh", "worker", "--queue", "q"], env=environment, capture_output=True, text=True
    )
    assert said.stdout == "redis://worker:abc@redis:6379/0 worker --queue q\n"


def test_the_image_runs_as_nobody_special_and_copies_what_exists() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    final = lines[max(number for number, line in enumerate(lines) if line.startswith("FROM")) :]
    assert [line for line in final if line.startswith("USER")] == ["USER 10001"]
    assert not any(word in line for line in final for word in ("gcc", "build-essential", "pip install", "curl"))
    allowed = {line[1:] for line in (DEPLOY.parent / ".dockerignore").read_text().splitlines() if line[0] == "!"}
    for line in lines:
        words = [word for word in line.split() if not word.startswith("--")]
        if words[:1] == ["COPY"] and "--from=build" not in line:
            for source in words[1:-1]:
                assert (DEPLOY.parent / source).exists()
                assert source in allowed


def test_the_unit_delegates_what_commands_are_limited_by() -> None:
    lines = [line.partition("=") for line in (DEPLOY / "toolreef.service").read_text().splitlines() if "=" in line]
    unit = {name: value for name, _, value in lines if not name.startswith("#")}
    assert set(unit["Delegate"].split()) == set(CONTROLLERS)
    assert unit["OOMPolicy"] == "continue"
    assert unit["RestartPreventExitStatus"] == str(SANDBOX_UNAVAILABLE)
    assert int(unit["TimeoutStopSec"]) > read_settings({}).drain_s
    assert unit["User"] != "root"

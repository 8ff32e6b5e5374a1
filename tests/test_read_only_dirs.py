"""TOOLREEF_READ_ONLY_DIRS: what commands may read besides the system's, and what can't be meant by it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fleet import Fleet
from worker.settings import SettingsError, read_only_dirs, read_settings


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    (made / "file").write_text("text\n")
    return made


def wanted(tmp_path: Path, text: str, **environ: str) -> tuple[str, ...]:
    return read_only_dirs(
        read_settings({"TOOLREEF_STATE": str(tmp_path / "state"), "TOOLREEF_READ_ONLY_DIRS": text, **environ})
    )


def test_several_and_none(tmp_path: Path, data: Path) -> None:
    assert wanted(tmp_path, f"{data}:/usr/share/:") == (str(data), "/usr/share")
    assert wanted(tmp_path, "") == ()


@pytest.mark.parametrize(
    "text, problem",
    [
        ("data", "data is not absolute"),
        ("/usr:{data}/none", "{data}/none is no directory, or there is none"),
        ("{data}/file", "{data}/file is no directory, or there is none"),
        ("/etc/ssl", "/etc/ssl: /etc, /proc and /dev are made for commands, not shown"),
        ("/", "/ is not apart from TOOLREEF_STATE, {root}/state"),
        ("{root}", "{root} is not apart from TOOLREEF_STATE, {root}/state"),
        ("{root}/way", "{root}/way is not apart from TOOLREEF_STATE, {root}/state"),
        ("{root}/state/workspaces/q", "{root}/state/workspaces/q is not apart from TOOLREEF_STATE, {root}/state"),
        ("{data}/keys", "{data}/keys is not apart from TOOLREEF_SECRETS_FILE, {data}/keys/secrets"),
    ],
)
def test_what_can_not_be_meant(tmp_path: Path, data: Path, text: str, problem: str) -> None:
    (tmp_path / "state/workspaces/q").mkdir(parents=True)
    (tmp_path / "way").symlink_to(tmp_path)
    (data / "keys").mkdir()
    with pytest.raises(SettingsError) as caught:
        wanted(tmp_path, text.format(data=data, root=tmp_path), TOOLREEF_SECRETS_FILE=f"{data}/keys/secrets")
    assert str(caught.value) == "TOOLREEF_READ_ONLY_DIRS: " + problem.format(data=data, root=tmp_path)


def test_commands_read_there_and_file_tools_do_not(make_fleet: Callable[..., Fleet], data: Path) -> None:
    fleet = make_fleet(read_only_dirs=data)
    fleet.start_worker()
    agent = fleet.agent()
    script = f"cat {data}/file; (echo x > {data}/file; rm {data}/file; touch {data}/new) 2>/dev/null; ls {data}"
    assert agent.complete("run_command", command=script)["stdout"] == "text\nfile\n"
    assert agent.fail("read_file", path=f"{data}/file").code == "not_found"
    assert (data / "file").read_text() == "text\n"


def test_a_directory_that_is_missing_stops_the_start(make_fleet: Callable[..., Fleet]) -> None:
    fleet = make_fleet(read_only_dirs="/nowhere")
    done = fleet.run("worker")
    assert (done.returncode, b"TOOLREEF_READ_ONLY_DIRS: /nowhere is no directory" in done.stderr) == (2, True)

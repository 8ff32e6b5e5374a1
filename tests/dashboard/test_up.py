"""toolreef up brings its dashboard along, and takes it with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from tests.fleet import wait_until


def ask(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.loads(answer.read())


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_up_prints_the_address_of_a_dashboard_that_ends_with_it(tmp_path: Path) -> None:
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith("TOOLREEF_") and name != "REDIS_URL"
    }
    command = [sys.executable, "-m", "worker", "up", "--queue", "u"]
    log = tmp_path / "log"
    with log.open("wb") as errors:
        up = subprocess.Popen(
            command,
            env={**clean, "TOOLREEF_STATE": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    assert up.stdout is not None
    try:
        lines = [up.stdout.readline().decode(), up.stdout.readline().decode()]
        (said,) = [line for line in lines if line.startswith("toolreef dashboard: ")]
        assert said.startswith("toolreef dashboard: http://127.0.0.1:")
        url = said.split()[-1]
        wait_until(lambda: ask(url + "api/queues")["queues"][0]["workers_alive"] == 1, "the worker to show")
        me = ask(url + "api/me")
        assert (me["queues"], me["roles"], me["can_cancel"]) == (["u"], ["viewer"], False)
        children = Path(f"/proc/{up.pid}/task/{up.pid}/children").read_text().split()
        (child,) = [int(pid) for pid in children if b"dashboard" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        up.send_signal(signal.SIGINT)
        assert up.wait(timeout=60) == 0, log.read_text()
        wait_until(lambda: not is_alive(child), "the dashboard to end")
        assert "Traceback" not in log.read_text()
    finally:
        up.kill()
        up.wait()
        up.stdout.close()


def test_without_its_packages_the_command_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name in ('starlette', 'uvicorn') else find(name, *a)\n"
        "import sys; from worker.cli import main; sys.exit(main(['dashboard']))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert ended.returncode == 4
    assert ended.stderr == b"toolreef: the dashboard needs starlette and uvicorn: pip install 'toolreef[dashboard]'\n"
    assert ended.stdout == b""


def test_other_commands_do_not_load_a_web_server() -> None:
    code = "import sys, worker.cli; print([m for m in ('starlette', 'uvicorn', 'anyio') if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    assert loaded.stdout == b"[]\n"

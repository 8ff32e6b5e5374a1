"""FleetWorker replaces parts of arq's Worker: a new arq that changes them, or what they lean on, must be noticed."""

from __future__ import annotations

import hashlib
import inspect

import arq.connections
import arq.jobs
import pytest
from arq.worker import Worker

OVERRIDDEN = {
    Worker.__init__: "edfb0cd7e05e77cf",
    Worker.run: "e683c7f402930145",
    Worker.main: "45ca1591c9717466",
    Worker.close: "5bcc9cb356680829",
    Worker.handle_sig: "985ff7ba01aa8f04",
    Worker.handle_sig_wait_for_completion: "8f161d86834cc74e",
    Worker._add_signal_handler: "7efddf3cba88b9d7",
    arq.connections.ArqRedis.enqueue_job: "7da8706a747c1171",
    arq.jobs.serialize_job: "1fc854cc50e16e5c",
}


@pytest.mark.parametrize("function", OVERRIDDEN, ids=lambda function: function.__qualname__)
def test_what_we_replace_or_lean_on_is_as_it_was(function: object) -> None:
    source = inspect.getsource(function)  # type: ignore[arg-type]
    assert hashlib.sha256(source.encode()).hexdigest()[:16] == OVERRIDDEN[function]  # type: ignore[index]

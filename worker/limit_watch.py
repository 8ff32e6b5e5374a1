"""What a command's tree uses against what it may, asked again and again by its runner, which ends what is over.

Imports nothing but the standard library and its neighbours, which do the same.
"""

from __future__ import annotations

import os
import resource
import time
from typing import Any

from worker import proctree
from worker.cgroups import Cgroup

_GLANCE_EACH_S = 0.025
_GLANCE_WHILE_IT_GROWS_S = 0.005
_GROWS = 0.125
_LOOK_EACH_S = 0.1
_LOOKS_COST_AT_MOST = 0.05


class LimitWatch:
    """Of the tree below this process, whose first child is the command's shell.

    `allowed` has `cpu_s`, `memory_bytes` and `processes`. `limit` is the first of them that was passed, by its name in
    `limits_hit`.
    """

    def __init__(self, allowed: dict[str, Any], shell: int, cgroup: Cgroup | None) -> None:
        self.allowed = allowed
        self.limit: str | None = None
        self.cpu_s = 0.0
        self._shell = shell
        self._cgroup = cgroup
        self._peak_bytes = 0
        self._orphans_cpu_s = 0.0
        self._look_at = time.monotonic() + _LOOK_EACH_S / 2
        self._tasks_before = proctree.tasks_of_host()
        self._grows = False

    @property
    def glance_each_s(self) -> float:
        """How long `is_over` may wait to be asked."""
        return _GLANCE_WHILE_IT_GROWS_S if self._grows else _GLANCE_EACH_S

    def is_over(self) -> bool:
        """Whether a limit was passed. Takes microseconds, ten times a second milliseconds."""
        # What the kernel keeps count of costs microseconds to ask for, however many processes the host has.
        if self._cgroup is not None:
            self.limit = self._cgroup.hit() or ("cpu" if self._cgroup.cpu_s() >= self.allowed["cpu_s"] else None)
        if self.limit is None and (time.monotonic() >= self._look_at or self._multiplies()):
            self._look()
        return self.limit is not None

    def shell_ended(self, used: resource.struct_rusage) -> None:
        """With what the shell and the children it waited for had used."""
        self.cpu_s = max(self.cpu_s, used.ru_utime + used.ru_stime)
        self._peak_bytes = max(self._peak_bytes, used.ru_maxrss * 1024)

    def conclude(self) -> tuple[str | None, int]:
        """The limit that ended it, if one did, and the most memory that was seen in use."""
        if self.limit is None and self._cgroup is not None:
            self.limit = self._cgroup.hit()
        if self.limit is None and self._peak_bytes >= self.allowed["memory_bytes"]:
            self.limit = "memory"
        return self.limit, (self._cgroup.peak_bytes() if self._cgroup else 0) or self._peak_bytes

    def _multiplies(self) -> bool:
        # A fork bomb shows in the number of tasks of the whole host.
        more = proctree.tasks_of_host() - self._tasks_before
        self._grows = more >= self.allowed["processes"] * _GROWS
        return bool(more >= self.allowed["processes"])

    def _look(self) -> None:
        started = time.monotonic()
        self._orphans_cpu_s += proctree.reap_all_but(self._shell)
        used = proctree.usage(proctree.below(os.getpid()), self.allowed["memory_bytes"])
        cpu_s = used.cpu_s + self._orphans_cpu_s
        self.cpu_s = max(self.cpu_s, cpu_s)
        self._peak_bytes = max(self._peak_bytes, used.memory_bytes)
        for limit, amount, allowed in (
            ("cpu", cpu_s, self.allowed["cpu_s"]),
            ("memory", used.memory_bytes, self.allowed["memory_bytes"]),
            ("processes", used.tasks, self.allowed["processes"]),
        ):
            if amount >= allowed:
                self.limit = limit
        # Every process of the host is read: where there are many, there are fewer looks.
        now = time.monotonic()
        self._look_at = now + max(_LOOK_EACH_S, (now - started) / _LOOKS_COST_AT_MOST)

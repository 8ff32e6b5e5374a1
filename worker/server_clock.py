"""When something was done at the server, by this process' clock: the server's answers give only its own."""

from __future__ import annotations

import time

FRESH_S = 60.0
_DRIFT_S = 0.05
"""How far two clocks may run apart within FRESH_S: NTP slews by 500 ppm at most."""


class ServerClock:
    """One server's clock beside time.monotonic(), known from an answered command."""

    def __init__(self) -> None:
        self._offset_s: float | None = None
        self._read_at = float("-inf")

    @property
    def is_fresh(self) -> bool:
        """Whether it was read lately enough for `earliest` to be close."""
        return self._offset_s is not None and time.monotonic() - self._read_at < FRESH_S

    def note(self, sent: float, now_ms: int) -> None:
        """A command sent at `sent` was carried out at `now_ms` of the server's, so not before that."""
        self._offset_s, self._read_at = sent - now_ms / 1000, sent

    def forget(self) -> None:
        """It may be another server from now on."""
        self._offset_s = None

    def earliest(self, now_ms: int, sent: float, heard: float) -> float:
        """The earliest time at which a command can have been carried out that was sent long before it was.

        That is `sent` where the server's clock was set meanwhile, so that it tells nothing.
        """
        if self._offset_s is None:
            return sent
        at = now_ms / 1000 + self._offset_s - _DRIFT_S
        if not sent - 2 * _DRIFT_S <= at <= heard:
            self.forget()
            return sent
        return max(sent, at)

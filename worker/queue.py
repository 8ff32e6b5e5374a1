"""FleetWorker: arq's worker with a bell instead of a poll, leases that are renewed, and endings that are fenced.

One turn publishes what has finished and claims what is due. Between turns an idle worker sleeps on the bell.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
import signal
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec
from arq.worker import Worker
from redis.exceptions import ResponseError

from contracts import keys
from contracts.connection import is_passing
from contracts.tasks import end_all
from worker.broker import BELL_TIMEOUT_S, UNREACHABLE, Broker
from worker.claims import Claimed, Ending, Turn
from worker.executor import Running, StopReason
from worker.metrics import Metrics

log = logging.getLogger("toolreef")

STOP_AT = 0.8
"""The part of a lease after which a call whose lease could not be renewed is stopped, before others may claim it."""


T = TypeVar("T")
Finishing = Coroutine[Any, Any, tuple[int, list[str]]]
Execute = Callable[[Running], Coroutine[Any, Any, Ending]]


class FleetWorker(Worker):
    """Serves one or several queues. `execute` carries out one claimed call and must answer whatever happens to it."""

    def __init__(
        self,
        functions: Sequence[Any],
        *,
        queues: Sequence[str],
        broker: Broker,
        execute: Execute,
        concurrency: int,
        lease_s: float,
        drain_s: float,
        metrics: Metrics,
        describe: dict[str, Any],
        **arq: Any,
    ) -> None:
        super().__init__(functions, queue_name=keys.queue(queues[0]), max_jobs=concurrency, **arq)
        self.queues = list(queues)
        self.broker = broker
        self.metrics = metrics
        self._execute = execute
        self._lease_s, self._drain_s = lease_s, drain_s
        self._describe = describe
        # By token too: a call whose lease has ended can come back while its old task is still being stopped.
        self._running: dict[tuple[str, int], Running] = {}
        self._newest: dict[str, Running] = {}
        self._endings: list[Ending] = []
        self._returns: list[Claimed] = []
        self._unsure: dict[str, str] = {}
        # On a cluster one queue's server may be away while the others serve on: failures so far, and who looks for it.
        self._tries: dict[str, int] = {}
        self._away: dict[str, asyncio.Task[None]] = {}
        self._more = set(queues)
        self._due: dict[str, asyncio.TimerHandle] = {}
        self._wake, self._room, self._heard = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._draining = False
        self._stopped = asyncio.Event()
        self._given_up = False
        self._next_queue = 0
        self._failures = 0

    # -- the life of the worker

    async def main(self) -> None:
        """Runs until a signal has drained the worker. A lost Redis never ends it."""
        self.ctx["redis"] = self._pool
        if self.on_startup:
            await self.on_startup(self.ctx)
        watches = (self._listen, self._renew, self._watch, self._hear_cancels)
        watchers = [asyncio.create_task(each()) for each in watches]
        self._wake.set()
        try:
            while not self._given_up and not (self._draining and not self._busy()):
                await self._wake.wait()
                self._wake.clear()
                await self._turn()
        finally:
            await end_all([*watchers, *self._away.values()])
            self._stopped.set()

    async def close(self) -> None:
        """Leaves the heartbeats, rings for the others, and closes the connections."""
        with contextlib.suppress(*UNREACHABLE):
            async with asyncio.timeout(2):
                for queue in self.queues:
                    await self.broker.forget(queue)
                    await self.broker.ring(queue)
        if self.on_shutdown:
            await self.on_shutdown(self.ctx)
        await self.broker.close()
        self._pool = None

    def handle_sig(self, signum: signal.Signals) -> None:
        """SIGTERM, SIGINT: drain. A second signal stops the running calls at once."""
        if self._draining:
            self._stop_all()
            return
        log.info("draining on %s, %d calls running", signal.Signals(signum).name, len(self._running))
        self._draining = True
        self.allow_pick_jobs = False
        self.loop.create_task(self._drain())
        self._wake.set()

    handle_sig_wait_for_completion = handle_sig

    async def _drain(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_s):
                await self._stopped.wait()
        self._stop_all()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._lease_s):
                await self._stopped.wait()
        # Redis stays away: whoever claims after the leases' end answers in our place.
        self._given_up = True
        self._wake.set()

    def _busy(self) -> bool:
        return bool(self._running or self._endings or self._returns)

    def _stop_all(self) -> None:
        for each in list(self._running.values()):
            each.stop("interrupted")

    def _stop_call(self, job_id: str, reason: StopReason) -> bool:
        """Stops whatever runs under the id. Whether anything did."""
        found = self._newest.get(job_id)
        if found is not None:
            found.stop(reason)
        return found is not None

    # -- one turn

    async def _turn(self) -> None:
        """Serves each queue, beginning with another one each time."""
        order = self.queues[self._next_queue :] + self.queues[: self._next_queue]
        self._next_queue = (self._next_queue + 1) % len(self.queues)
        for queue in order:
            if queue not in self._away:
                await self._serve(queue)
        claimable = bool(self._more - self._away.keys())
        if claimable and not self._draining and len(self._running) < self.max_jobs:
            self._wake.set()
        elif not claimable:
            self._heard.set()
        self._note_room()

    async def _serve(self, queue: str) -> None:
        try:
            await self._settle_lost_claim(queue)
            await self._give_back(queue)
            await self._publish_and_fill(queue)
        except UNREACHABLE as error:
            self._away[queue] = self.loop.create_task(self._look_for(queue, error))
        else:
            self._tries.pop(queue, None)
            self._failures = 0

    async def _publish_and_fill(self, queue: str) -> None:
        """Both go out together, and Redis takes them in this order. What is claimed starts once the next turn has sent
        its own, so that Redis works while calls run."""
        batch = [ending for ending in self._endings if ending.queue == queue]
        publishing = self._published(queue, batch, self.broker.finish(queue, batch)) if batch else None
        try:
            await self._fill(queue)
        finally:
            if publishing is not None:
                await publishing

    async def _look_for(self, queue: str, error: BaseException | None) -> None:
        """Until the queue's server answers. Apart from the turns, which a silent server would hold up."""
        while error is not None:
            self._tries[queue] = self._tries.get(queue, 0) + 1
            await asyncio.sleep(self._note_failure(self._tries[queue], error))
            try:
                await self.broker.touch(queue)
                error = None
            except UNREACHABLE as still:
                error = still
        del self._away[queue]
        self._wake.set()

    async def _published(self, queue: str, batch: list[Ending], sent: Finishing) -> None:
        """What Redis does not take now stays for the next turn, whatever it answers."""
        try:
            granted, words = await sent
        except ResponseError as error:
            granted, words = await self._publish_singly(queue, batch, error)
        self._endings = _without(self._endings, batch)
        self.metrics.stale += words.count("stale")
        if granted:
            self._more.add(queue)

    async def _publish_singly(self, queue: str, batch: list[Ending], error: ResponseError) -> tuple[int, list[str]]:
        """One ending that Redis refuses must not hold up its neighbours; it goes to the dead letters instead."""
        if is_passing(error):
            raise ConnectionError(str(error)) from error
        granted = 0
        words: list[str] = []
        for ending in batch:
            try:
                more, answer = await self.broker.finish(queue, [ending])
                granted, words = granted + more, words + answer
            except ResponseError as refused:
                log.error("reply of %s refused: %s", ending.id, refused)
                self.metrics.undeliverable += 1
                with contextlib.suppress(*UNREACHABLE):
                    await self.broker.bury(queue, ending.id, f"reply refused: {refused}")
        return granted, words

    async def _fill(self, queue: str) -> None:
        """Claims due calls into the free slots, half of all at most: so some run while Redis claims others."""
        slots = min(self.max_jobs - len(self._running), max(1, self.max_jobs // 2))
        if self._draining or slots <= 0 or queue not in self._more:
            return
        ticket = self._unsure[queue] = uuid.uuid4().hex
        sent = time.monotonic()
        # Before the claim: a bell that rings while it is under way is for what it has not seen.
        self._more.discard(queue)
        try:
            turn = await self.broker.claim(queue, slots, self._heartbeat(), ticket)
        except BaseException:
            self._more.add(queue)
            raise
        del self._unsure[queue]
        self._take(queue, turn, sent)

    def _take(self, queue: str, turn: Turn, sent: float) -> None:
        if turn.more:
            self._more.add(queue)
        if queue in self._due:
            self._due.pop(queue).cancel()
        if 0 <= turn.due_ms < BELL_TIMEOUT_S * 1000:
            self._due[queue] = self.loop.call_later(turn.due_ms / 1000, self._note_due, [queue])
        if self._draining:
            self._returns += turn.calls
            self._wake.set()
            return
        for claim in turn.calls:
            self._stop_call(claim.id, "interrupted")
            running = self._running[claim.id, claim.token] = self._newest[claim.id] = Running(claim, sent)
            running.task = self.loop.create_task(self._execute(running))
            running.task.add_done_callback(functools.partial(self._ended, running))

    def _ended(self, running: Running, task: asyncio.Task[Ending]) -> None:
        del self._running[running.claim.id, running.claim.token]
        if self._newest.get(running.claim.id) is running:
            del self._newest[running.claim.id]
        self._wake.set()
        if task.cancelled():
            # Stopped in the very turn that created it; the executor answers every later cancellation itself.
            self._returns.append(running.claim)
        elif error := task.exception():
            log.critical("the executor raised on %s; its lease will end", running.claim.id, exc_info=error)
        else:
            self._endings.append(task.result())

    async def _give_back(self, queue: str) -> None:
        if batch := [claim for claim in self._returns if claim.queue == queue]:
            await self.broker.release(queue, batch)
            self._returns = _without(self._returns, batch)

    async def _settle_lost_claim(self, queue: str) -> None:
        """A claim whose answer never came may still have been made. What it claimed was not started: it goes back."""
        if queue in self._unsure:
            released = await self.broker.undo_claim(queue, self._unsure[queue])
            if released:
                log.warning("gave back %d calls of queue %s whose claim was cut off", released, queue)
            del self._unsure[queue]
            self._more.add(queue)

    # -- the watchers

    async def _listen(self) -> None:
        while not self._draining:
            await self._room.wait()
            rung = None
            try:
                rung = await self.broker.listen(
                    [queue for queue in self.queues if queue not in self._away] or self.queues, BELL_TIMEOUT_S
                )
            except UNREACHABLE as error:
                await self._back_off(error)
            # Cleared only now: a turn that was under way when the bell rang has not heard it.
            self._heard.clear()
            self._note_due([rung] if rung else self.queues)
            await self._heard.wait()

    def _note_due(self, queues: Sequence[str]) -> None:
        self._more.update(queues)
        self._wake.set()

    def _note_room(self) -> None:
        if len(self._running) < self.max_jobs and not self._draining:
            self._room.set()
        else:
            self._room.clear()

    async def _renew(self) -> None:
        """Renews every lease with one call a queue, side by side: a slow server must not cost another's leases."""
        while True:
            await asyncio.sleep(self._lease_s / 3)
            await asyncio.gather(*(self._renew_queue(queue) for queue in self.queues))

    async def _renew_queue(self, queue: str) -> None:
        held = [each for each in self._running.values() if each.claim.queue == queue]
        if not held:
            return
        sent = time.monotonic()
        try:
            words = await self.broker.renew(queue, [each.claim for each in held], self._heartbeat())
        except UNREACHABLE as error:
            log.warning("could not renew %d leases: %s", len(held), error)
            return
        for each, word in zip(held, words, strict=True):
            if word == "lost":
                each.stop("interrupted")
                continue
            each.renewed = sent
            if word == "cancel":
                each.stop("cancelled")

    async def _watch(self) -> None:
        """Stops what could not be renewed in time. Apart from `_renew`, which may hang on a half-open connection."""
        while True:
            await asyncio.sleep(self._lease_s / 20)
            for each in list(self._running.values()):
                if time.monotonic() - each.renewed > STOP_AT * self._lease_s:
                    each.stop("interrupted")

    async def _hear_cancels(self) -> None:
        channels = {keys.cancel_channel(queue): queue for queue in self.queues}
        while True:
            try:
                async for channel, session, call in self.broker.cancels(list(channels)):
                    queue = channels[channel]
                    if not self._stop_call(keys.job_id(queue, session, call), "cancelled"):
                        await self.broker.bring_forward(queue, session, call)
            except UNREACHABLE as error:
                await self._back_off(error)

    # -- small things

    async def _back_off(self, error: BaseException) -> None:
        self._failures += 1
        await asyncio.sleep(self._note_failure(self._failures, error))

    def _note_failure(self, failures: int, error: BaseException) -> float:
        """50 ms to 2 s to wait, longer after each failure, with jitter so that a fleet does not return as one."""
        self.metrics.reconnects += 1
        delay_s: float = min(2.0, 0.05 * 2 ** min(failures, 10)) * random.uniform(0.5, 1.0)
        if failures in (1, 10) or failures % 100 == 0:
            log.warning("Redis is out of reach (%s: %s), next try in %.2f s", type(error).__name__, error, delay_s)
        return delay_s

    def _heartbeat(self) -> bytes:
        return msgspec.json.encode(
            {
                **self._describe,
                "running": len(self._running),
                "slots": self.max_jobs,
                "draining": self._draining,
                "metrics": self.metrics,
            }
        )


def _without(all_: list[T], some: list[T]) -> list[T]:
    """What is left, with all that has come meanwhile."""
    gone = {id(each) for each in some}
    return [each for each in all_ if id(each) not in gone]

"""Writes outcomes in batches.

While one batch is written the next one collects, so that a burst of outcomes needs few transactions and a single
outcome does not wait. An outcome that cannot be written stays in memory, its lease renewed, until it can.
"""

import asyncio
import os
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import structlog
from sqlalchemy import Connection

from fieldpost.central.dispatch.attempt import RunningAttempt
from fieldpost.central.dispatch.options import DispatchOptions
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import breakers as breaker_rows
from fieldpost.central.store.notifications import finishing
from fieldpost.central.store.notifications.attempts import Finished
from fieldpost.clock import Clock
from fieldpost.core.breaker import Breaker, BreakerPolicy, give_back_probe, next_probe, record
from fieldpost.core.errors import Unavailable
from fieldpost.core.ids import new_ids
from fieldpost.core.lifecycle import Hold, decide
from fieldpost.core.meter import Meter
from fieldpost.core.outcome import Held, Outcome
from fieldpost.core.text import truncate

log = structlog.get_logger()

AGAIN_S = 1.0


class Results:
    """Writes the results of attempts; `on_ended` is called with the attempts whose claims have ended."""

    def __init__(
        self,
        store: Store,
        node_id: str,
        clock: Clock,
        rng: random.Random,
        options: DispatchOptions,
        on_ended: Callable[[Sequence[RunningAttempt], dict[str, Breaker]], None],
        meter: Meter,
    ) -> None:
        self._store = store
        self._node_id = node_id
        self._clock = clock
        self._rng = rng
        self._options = options
        self._on_ended = on_ended
        self._meter = meter
        self._waiting: list[RunningAttempt] = []
        self._news = asyncio.Event()

    def add(self, flight: RunningAttempt) -> None:
        """Queue a finished attempt, whose `outcome` is set."""
        self._waiting.append(flight)
        self._news.set()

    async def run(self) -> None:
        """Write queued outcomes until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                if not await self.apply_waiting():
                    await self._clock.sleep(AGAIN_S)

    async def apply_waiting(self) -> bool:
        """Write all queued outcomes as one batch; returns False if some could not be written."""
        left, self._waiting = self._waiting, []
        try:
            if left:
                await self._write(left)
                left = []
        except Unavailable as error:
            log.error("result.kept", count=len(left), error=error.message)
        except Exception:
            # One of them cannot be written; write the others.
            await self._write_each(left)
        finally:
            # A cancelled write may have been committed; writing the same result again changes nothing.
            self._waiting = left + self._waiting
        return not left

    async def _write_each(self, left: list[RunningAttempt]) -> None:
        """Write one by one and remove the written ones from the list."""
        for flight in tuple(left):
            try:
                await self._write([flight])
            except Unavailable:
                return
            except Exception:
                log.exception("result.not_written", notification_id=flight.key[0], token=flight.key[1])
            else:
                left[:] = [other for other in left if other is not flight]

    async def _write(self, batch: Sequence[RunningAttempt]) -> None:
        chances = [self._rng.random() for _ in batch]
        event_ids = new_ids(self._clock.now(), os.urandom(10 * 2 * len(batch)))
        late, breakers, finished = await self._store.write(
            _apply, self._node_id, batch, chances, event_ids, self._options.breaker
        )
        self._on_ended(batch, breakers)
        await asyncio.sleep(0)  # let the dispatcher claim the freed slots before logging
        self._log_results(batch, finished, late)

    def _log_results(self, batch: Sequence[RunningAttempt], finished: Sequence[Finished], late: set[str]) -> None:
        for flight, f in zip(batch, finished, strict=True):
            n = flight.claimed.notification
            if f.notification_id in late:
                self._meter.late()
                log.warning("attempt.late", notification_id=f.notification_id, token=f.token, outcome=f.outcome)
            else:
                self._meter.finished(n.type, f.outcome, flight.duration_s)
                log.info(
                    "attempt.finished",
                    notification_id=f.notification_id,
                    list_name=n.list_name,
                    site=n.provenance.site,
                    outcome=f.outcome,
                    status=f.transition.status.value,
                    retry_count=f.transition.retry_count,
                    duration_ms=f.duration_ms,
                    error=f.error,
                )


def _apply(
    conn: Connection,
    node_id: str,
    batch: Sequence[RunningAttempt],
    chances: Sequence[float],
    event_ids: Sequence[str],
    policy: BreakerPolicy,
) -> tuple[set[str], dict[str, Breaker], list[Finished]]:
    """Write breakers, then rows, targets, attempts and audit entries that depend on them, in one transaction."""
    moments = [flight.now() for flight in batch]
    breakers = _give_back_unsent(conn, node_id, batch) | _record_all(conn, batch, moments, policy)
    finished = [
        _finish(flight, now, chance, breakers, policy)
        for flight, now, chance in zip(batch, moments, chances, strict=True)
    ]
    return finishing.apply(conn, node_id, finished, event_ids), breakers, finished


def _record_all(
    conn: Connection, batch: Sequence[RunningAttempt], moments: Sequence[datetime], policy: BreakerPolicy
) -> dict[str, Breaker]:
    by_key: dict[str, list[tuple[Outcome, datetime]]] = {}
    for flight, now in zip(batch, moments, strict=True):
        key, outcome = flight.breaker_key, flight.outcome
        if key is not None and outcome is not None and outcome.phase not in _NOT_SENT:
            by_key.setdefault(key, []).append((outcome, now))
    seen = breaker_rows.load(conn, by_key) if by_key else {}
    after = {}
    for key, outcomes in by_key.items():
        before = seen.get(key, Breaker(key))
        after[key] = _record(before, outcomes, policy)
        if after[key] is not before:
            changed = breaker_rows.change(conn, key, lambda b, o=outcomes: _record(b, o, policy))  # type: ignore[misc]
            assert changed is not None, "recording always gives a breaker"
            after[key] = changed
    return after


def _give_back_unsent(conn: Connection, node_id: str, batch: Sequence[RunningAttempt]) -> dict[str, Breaker]:
    """Return probes that never reached their channel, so that the next probe may start."""
    after = {}
    for flight in batch:
        key, outcome = flight.breaker_key, flight.outcome
        if flight.is_probe and key is not None and outcome is not None and outcome.phase in _NOT_SENT:
            at = flight.now()
            changed = breaker_rows.change(conn, key, lambda b, at=at: give_back_probe(b, node_id, at))  # type: ignore[misc]
            assert changed is not None, "giving back always gives a breaker"
            after[key] = changed
    return after


# Phases in which the channel was not contacted, so they are no evidence about it.
_NOT_SENT = {"breaker", "resolve", "orphaned", "bug"}


def _record(breaker: Breaker, outcomes: Sequence[tuple[Outcome, datetime]], policy: BreakerPolicy) -> Breaker:
    for outcome, at in outcomes:
        breaker = record(breaker, outcome, policy, at)
    return breaker


def _finish(
    flight: RunningAttempt, now: datetime, chance: float, breakers: Mapping[str, Breaker], policy: BreakerPolicy
) -> Finished:
    assert flight.outcome is not None, "only flights with an outcome are added"
    n, outcome, key = flight.claimed.notification, flight.outcome, flight.breaker_key or ""
    # Only held notifications wait for the breaker.
    until = next_probe(breakers.get(key, Breaker(key)), policy, now) if isinstance(outcome, Held) else now
    return Finished(
        n.notification_id,
        flight.claimed.token,
        decide(n, outcome, flight.policy, Hold(key, until), now, chance),
        outcome.word,
        truncate(outcome.error) if outcome.error else None,
        outcome.phase,
        truncate(outcome.reply) if outcome.reply else None,
        round(flight.duration_s * 1000),
        now,
    )

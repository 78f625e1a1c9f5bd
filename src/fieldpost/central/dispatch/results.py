"""Outcomes gathered and applied in batches.

While one batch is being written the next one gathers, so that a burst of outcomes costs few transactions and a single
slow one is never held back. An outcome that cannot be written now stays here, its lease renewed, until it can.
"""

import asyncio
import os
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

import structlog
from sqlalchemy import Connection

from fieldpost.central.dispatch.attempt import RunningAttempt
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import notices
from fieldpost.central.store.notifications import breakers as breaker_rows
from fieldpost.central.store.notifications import finishing, lists, pauses
from fieldpost.central.store.notifications.attempts import Finished
from fieldpost.central.store.notifications.turns import RATE_USED_UP
from fieldpost.clock import Clock
from fieldpost.core.delivery.adapter import ClaimLost
from fieldpost.core.delivery.breaker import Breaker, give_back_probe, next_probe, record, record_success, wait
from fieldpost.core.delivery.holds import HoldKind, held_by, kind_of
from fieldpost.core.delivery.lifecycle import Hold, Policy, decide
from fieldpost.core.delivery.outcome import PAUSE_MAX, Delivered, Evidence, Held, Outcome, TransientFailure
from fieldpost.core.delivery.retry import Fixed
from fieldpost.core.delivery.routing import DeliveryPath
from fieldpost.core.errors import Unavailable
from fieldpost.core.events.notice import notices_of
from fieldpost.core.ids import new_ids
from fieldpost.core.meter import Meter
from fieldpost.core.notification import Target
from fieldpost.core.text import truncate

log = structlog.get_logger()

AGAIN_S = 1.0


class Results:
    """Writes the ends of attempts; `on_ended` is called for attempts whose claims have ended."""

    def __init__(
        self,
        store: Store,
        node_id: str,
        clock: Clock,
        rng: random.Random,
        on_ended: Callable[[Sequence[RunningAttempt], dict[str, Breaker]], None],
        meter: Meter,
    ) -> None:
        self._store = store
        self._node_id = node_id
        self._clock = clock
        self._rng = rng
        self._on_ended = on_ended
        self._meter = meter
        self._waiting: list[RunningAttempt] = []
        self._news = asyncio.Event()

    def add(self, flight: RunningAttempt) -> None:
        """Queue a finished attempt."""
        self._waiting.append(flight)
        self._news.set()

    async def record_reached(self, running: RunningAttempt, reached: Sequence[Target]) -> None:
        """Write targets of an attempt in progress as reached. Raises ClaimLost if another node has the claim, or if
        the database cannot be reached until another node may have it."""
        running.reached.update({target.address: target for target in reached})
        began = self._clock.monotonic()
        args = (self._node_id, running.key, reached, running.now())
        while True:
            try:
                is_ours = await self._store.write(
                    finishing.record_reached, *args, lease_s=running.lease_s, now=self._store.now()
                )
                break
            except Unavailable as error:
                log.warning("attempt.reached_kept", notification_id=running.key[0], error=error.message)
                await self._clock.sleep(AGAIN_S)
                running.gate()
                began = self._clock.monotonic()
        if not is_ours:
            raise ClaimLost("another node has claimed the notification")
        running.renewed_at = max(running.renewed_at, began)

    async def run(self) -> None:
        """Write gathered outcomes until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                if not await self.apply_waiting():
                    await self._clock.sleep(AGAIN_S)

    async def apply_waiting(self) -> bool:
        """Write all gathered outcomes as one batch; False if one of them could not be written now."""
        left, self._waiting = self._waiting, []
        try:
            if left:
                await self._write(left)
        except Unavailable as error:
            log.error("result.kept", count=len(left), error=error.message)
        except Exception:
            # One of them cannot be written; that must not block the others.
            await self._write_each(left)
        finally:
            # A write that was cancelled may have gone through; writing the same end again changes nothing.
            self._waiting = left + self._waiting
        return not left

    async def _write_each(self, left: list[RunningAttempt]) -> None:
        """Write one by one and take what is written out of the list."""
        for flight in tuple(left):
            try:
                await self._write([flight])
            except Unavailable:
                return
            except Exception:
                log.exception("result.not_written", notification_id=flight.key[0], token=flight.key[1])
            else:
                left[:] = [other for other in left if other is not flight]

    async def _write(self, left: list[RunningAttempt]) -> None:
        """Write the ends of these attempts, and take what is written out of the list.

        Most are deliveries that change no breaker. These are one statement, without a transaction around it.
        """
        ends = [(one, _finish(one, one.now(), 0.0, {})) for one in left if _is_simple(one, self._node_id)]
        if ends := [(one, f) for one, f in ends if finishing.is_simple(f)]:
            keys = {one.breaker_key for one, _ in ends if one.breaker_key is not None}
            ids = new_ids(self._clock.now(), os.urandom(10 * 2 * len(ends)))
            done, late = await self._store.write_one(finishing.deliver, self._node_id, [f for _, f in ends], ids, keys)
            left[:] = [one for one in left if one.key not in done]
            await self._end([(one, f) for one, f in ends if one.key in done], late, {})
        if left:
            chances = [self._rng.random() for _ in left]
            ids = new_ids(self._clock.now(), os.urandom(10 * 2 * len(left)))
            late, breakers, finished = await self._store.write(_apply, self._node_id, tuple(left), chances, ids)
            written = list(zip(left, finished, strict=True))
            left.clear()
            await self._end(written, late, breakers)

    async def _end(
        self, written: Sequence[tuple[RunningAttempt, Finished]], late: set[str], breakers: dict[str, Breaker]
    ) -> None:
        self._on_ended([one for one, _ in written], breakers)
        await asyncio.sleep(0)  # free slots are filled while the log is written
        self._report(written, late)

    def _report(self, written: Sequence[tuple[RunningAttempt, Finished]], late: set[str]) -> None:
        logger = log.bind()  # looked up once for the batch
        for flight, f in written:
            n = flight.claimed.notification
            if f.notification_id in late:
                self._meter.late()
                log.warning("attempt.late", notification_id=f.notification_id, token=f.token, outcome=f.outcome)
            else:
                self._meter.finished(n.type, f.outcome, flight.duration_s)
                logger.info(
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


def _is_simple(running: RunningAttempt, node_id: str) -> bool:
    """Whether nothing but its own row, targets and attempt have to change, unless a success changes its breaker."""
    outcome = running.outcome
    if type(outcome) is not Delivered or outcome.pauses or running.moved or running.is_probe:
        return False
    return _step(running, node_id, running.claimed.claimed_at) is record_success


def _apply(
    conn: Connection,
    node_id: str,
    batch: Sequence[RunningAttempt],
    chances: Sequence[float],
    event_ids: Sequence[str],
) -> tuple[set[str], dict[str, Breaker], list[Finished]]:
    """One transaction: breakers, then rows, targets, attempts and audit entries decided with them."""
    moments = [running.now() for running in batch]
    breakers = _record_all(conn, node_id, batch, moments)
    if paused := [pause for one in batch for pause in one.target_pauses()]:
        pauses.record(conn, paused, min(moments))
    if moved := [(one.claimed.notification.list_name, *pair) for one in batch for pair in one.moved.items()]:
        lists.mark_moved(conn, moved)
    finished = [
        _finish(running, now, chance, breakers) for running, now, chance in zip(batch, moments, chances, strict=True)
    ]
    late = finishing.apply(conn, node_id, finished, event_ids)
    return late, breakers, finished


def _record_all(
    conn: Connection, node_id: str, batch: Sequence[RunningAttempt], moments: Sequence[datetime]
) -> dict[str, Breaker]:
    """Record the evidence of all attempts in a set, with the breakers locked in the order of their keys."""
    steps: dict[str, list[Callable[[Breaker], Breaker]]] = {}
    for running, now in zip(batch, moments, strict=True):
        if (step := _step(running, node_id, now)) is not None and running.breaker_key is not None:
            steps.setdefault(running.breaker_key, []).append(step)
    seen = breaker_rows.load(conn, steps) if steps else {}
    rules = {key: partial(_follow, of_key) for key, of_key in steps.items()}
    # Most evidence says that a healthy path works, which changes nothing and needs no lock.
    changing = {key: rule for key, rule in rules.items() if rule(before := seen.get(key, Breaker(key))) is not before}
    changes: list[tuple[Breaker, Breaker]] = []
    changed = breaker_rows.change_many(conn, changing, changes)
    notices.add(conn, [notice for before, after in changes for notice in notices_of(before, after)], max(moments))
    return {**{key: seen.get(key, Breaker(key)) for key in rules}, **changed}


def _step(running: RunningAttempt, node_id: str, now: datetime) -> Callable[[Breaker], Breaker] | None:
    """The change of the breaker by the attempt; None if it was not sent and is not evidence."""
    path, outcome = running.path, running.outcome
    if not isinstance(path, DeliveryPath) or outcome is None:
        return None
    if running.rate_wait is not None:
        return partial(wait, until=running.rate_wait.next_at, kind=HoldKind.RATE_LIMIT, reason=RATE_USED_UP)
    if not running.is_sent:
        # A probe that was never sent leaves the breaker open for the next one.
        return partial(give_back_probe, owner=node_id, now=now) if running.is_probe else _unchanged
    waiting = _wait_rule(running, outcome, now)
    if outcome.evidence is Evidence.NONE and not running.is_probe:
        return waiting or _unchanged
    if outcome.evidence is Evidence.WORKS and waiting is None:
        return record_success
    counted = partial(record, evidence=outcome.evidence, error=outcome.error or "", policy=path.breaker_policy, now=now)
    return counted if waiting is None else partial(_follow, (counted, waiting))


def _wait_rule(running: RunningAttempt, outcome: Outcome, now: datetime) -> Callable[[Breaker], Breaker] | None:
    """A subscription waits as a whole if its receiver asks for it, or if central cannot make the call; the lists of a
    channel if its provider asks for it."""
    if not running.is_to_subscription:
        return _pause_rule(running, outcome, now)
    assert isinstance(running.path, DeliveryPath), "a subscription has a path"
    match outcome:
        case TransientFailure(retry_after=timedelta() as after):
            return partial(wait, until=now + after, kind=HoldKind.RATE_LIMIT, reason=outcome.error)
        case Held(kind=HoldKind.OUR_SIDE | HoldKind.RATE_LIMIT as kind) if running.is_sent:
            until = now + (outcome.wait or timedelta(seconds=running.path.breaker_policy.hold_s))
            return partial(wait, until=until, kind=kind, reason=outcome.error)
        case _:
            return None


def _pause_rule(running: RunningAttempt, outcome: Outcome, now: datetime) -> Callable[[Breaker], Breaker] | None:
    assert isinstance(running.path, DeliveryPath), "an attempt that was sent has a path"
    asked = [pause for pause in outcome.pauses if pause.address is None]
    if not asked and isinstance(outcome, Held) and running.path.breaker_key == running.delivery_key:
        # All due targets are paused, and the list has its own breaker: further rows wait without an attempt.
        asked = sorted(outcome.pauses, key=lambda pause: pause.wait)[:1]
    if not asked:
        return None
    longest = max(asked, key=lambda pause: pause.wait)
    until = now + min(longest.wait, PAUSE_MAX)
    return partial(wait, until=until, kind=HoldKind.RATE_LIMIT, reason=longest.reason)


def _unchanged(breaker: Breaker) -> Breaker:
    return breaker


def _follow(steps: Sequence[Callable[[Breaker], Breaker]], breaker: Breaker) -> Breaker:
    unchanging: Callable[[Breaker], Breaker] | None = None
    for step in steps:
        if step is not unchanging:  # most steps are the same one, `record_success`, and change nothing
            after = step(breaker)
            unchanging = step if after is breaker else None
            breaker = after
    return breaker


def _hold(running: RunningAttempt, outcome: Held, now: datetime, breakers: Mapping[str, Breaker]) -> Hold:
    assert isinstance(running.path, DeliveryPath), "only a resolved path can hold"
    path = running.path
    if outcome.kind.is_timed:
        pause = outcome.wait or timedelta(seconds=path.breaker_policy.hold_s)
        return Hold(held_by(outcome.kind, path.delivery_key), now + pause)
    if outcome.kind is HoldKind.PAUSE:
        return Hold(held_by(outcome.kind, path.delivery_key), now)
    if outcome.kind.is_queue:
        return Hold(held_by(outcome.kind, path.delivery_key), running.claimed.notification.due_at or now)
    breaker = breakers.get(path.breaker_key, Breaker(path.breaker_key))
    return Hold(path.breaker_key, next_probe(breaker, path.breaker_policy, now))


_UNRESOLVED_POLICY = Policy(Fixed(timedelta(seconds=60), 1))
"""Of a notification without a path: it is parked."""


def _finish(running: RunningAttempt, now: datetime, chance: float, breakers: Mapping[str, Breaker]) -> Finished:
    assert running.outcome is not None, "only attempts with an outcome are added"
    n, outcome, path = running.claimed.notification, running.outcome, running.path
    hold = _hold(running, outcome, now, breakers) if isinstance(outcome, Held) else Hold("", now)
    policy = path.policy if isinstance(path, DeliveryPath) else _UNRESOLVED_POLICY
    transition = decide(n, outcome, policy, hold, now, chance, running.reached)
    is_accepted = transition.held_by is not None and kind_of(transition.held_by) is HoldKind.RECEIPT
    return Finished(
        n.notification_id,
        running.claimed.token,
        transition,
        Held.word if is_accepted else outcome.word,
        truncate(outcome.error) if outcome.error else None,
        outcome.phase,
        truncate(outcome.reply) if outcome.reply else None,
        round(running.duration_s * 1000),
        now,
        outcome.exchanges,
    )

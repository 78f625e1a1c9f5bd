"""Care of subscriptions beside their deliveries: disable, drain, warn, and let breakers lapse.

Used by the dispatcher at each refresh. Disabling takes the lock on the catalogue of subscriptions, so it is done apart
from the transaction that writes results. If the node dies in between, the next failure of the subscription has the same
effect. A disabled or removed subscription *drains*: its waiting notifications are parked, or parked and discarded, in
batches. One that is in flight ends by its claim and is drained afterwards if the receiver did not accept it.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import structlog
from sqlalchemy import Connection

from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.dispatch.attempt import RunningAttempt
from fieldpost.central.dispatch.draining import drain
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import notices, subscriptions
from fieldpost.central.store.notifications import audit
from fieldpost.central.store.notifications import breakers as breaker_rows
from fieldpost.core.audit import SYSTEM, AuditChannel, AuditEntry, AuditKind, AuditStatus
from fieldpost.core.delivery.breaker import CHANNEL_KEY, Breaker, BreakerPolicy, lapse
from fieldpost.core.delivery.outcome import PermanentFailure
from fieldpost.core.delivery.routing import PathDefaults
from fieldpost.core.events.notice import DISABLED, FAILING, Notice, due_warning, outage_percent
from fieldpost.core.events.subscription import SUBSCRIPTION_KEY, SubscriptionState, in_state
from fieldpost.core.ids import new_id
from fieldpost.core.notification import LIST_KEY

EVERY_S = 60.0
"""How often breakers are checked for a lapse and subscriptions for rows left to drain."""
LAPSE_BATCH = 500
DRAIN_BATCH = 200
DRAIN_BATCHES = 10
"""How many batches are drained at a refresh, of all subscriptions: deliveries must not wait for more of them."""

log = structlog.get_logger()


class SubscriptionKeeper:
    """One for a dispatcher."""

    def __init__(self, store: Store, node_id: str, options: WebhookOptions, defaults: PathDefaults) -> None:
        self._store = store
        self._node_id = node_id
        self._disable_after = timedelta(days=options.disable_after_days)
        self._policies: Mapping[str, BreakerPolicy] = {
            SUBSCRIPTION_KEY: defaults.subscription_breaker,
            LIST_KEY: defaults.subscription_breaker,
            CHANNEL_KEY: defaults.channel_breaker,
        }
        self._to_disable: dict[str, str] = {}
        """Ids of subscriptions, and why."""
        self._to_warn: dict[str, int] = {}
        """Keys of breakers, and how much of their time has passed."""
        self._to_drain: dict[str, int] = {}
        """Ids of subscriptions that may have notifications left to drain, and how many were drained so far."""
        self._tended_at = float("-inf")
        self._version = -1

    def note(self, ended: Sequence[RunningAttempt], breakers: Mapping[str, Breaker]) -> None:
        """Learn from results that were written."""
        for running in ended:
            if isinstance(running.outcome, PermanentFailure) and running.outcome.is_gone and running.is_to_subscription:
                self._to_disable[running.delivery_key.removeprefix(SUBSCRIPTION_KEY)] = running.outcome.error
        failing = {
            key: breaker
            for key, breaker in breakers.items()
            if breaker.failing_since is not None and key.startswith(SUBSCRIPTION_KEY)
        }
        if not failing or not ended:
            return
        now = max(running.now() for running in ended)
        for key, breaker in failing.items():
            percent = outage_percent(breaker, self._disable_after, now)
            if percent >= 100:
                days = self._disable_after / timedelta(days=1)
                reason = f"no success for {days:g} {'day' if days == 1 else 'days'}; last error: {breaker.last_error}"
                self._to_disable[key.removeprefix(SUBSCRIPTION_KEY)] = reason
            elif due_warning(breaker, percent) is not None:
                self._to_warn[key] = percent

    @property
    def has_work(self) -> bool:
        return bool(self._to_disable or self._to_warn)

    async def tend(self, version: int, monotonic: float) -> None:
        """Do the due work. `version` is that of the catalogue: a change may have disabled or removed a subscription."""
        while self._to_disable:
            subscription_id, reason = next(iter(self._to_disable.items()))
            if await self._store.write(_disable, subscription_id, reason, now=self._store.now()):
                log.warning("subscription.disabled", subscription_id=subscription_id, reason=reason)
                version = -1
            del self._to_disable[subscription_id]
        while self._to_warn:
            key, percent = next(iter(self._to_warn.items()))
            await self._store.write(_warn, key, percent, now=self._store.now())
            del self._to_warn[key]
        if version != self._version or monotonic - self._tended_at >= EVERY_S:
            self._version, self._tended_at = version, monotonic
            for prefix, policy in self._policies.items():
                await self._store.write(_lapse, prefix, policy, now=self._store.now())
            found = await self._store.read(subscriptions.draining)
            self._to_drain = {subscription_id: self._to_drain.get(subscription_id, 0) for subscription_id in found}
        await self._drain()

    async def _drain(self) -> None:
        """Park or discard some batches of waiting notifications; the subscriptions take turns."""
        for _ in range(DRAIN_BATCHES):
            if not self._to_drain:
                return
            subscription_id = next(iter(self._to_drain))
            count = await self._store.write(drain, subscription_id, self._node_id, DRAIN_BATCH, now=self._store.now())
            total = self._to_drain.pop(subscription_id) + count
            if count:
                self._to_drain[subscription_id] = total
            elif total:
                log.info("subscription.drained", subscription_id=subscription_id, count=total)


def _disable(conn: Connection, subscription_id: str, reason: str, *, now: datetime | None) -> bool:
    """Disable the subscription if it gets notifications; whether this changed it."""
    subscriptions.lock_for_change(conn)
    seen = subscriptions.get(conn, subscription_id)
    if seen is None or not seen.state.gets_notifications:
        return False
    at = database_time(conn, now)
    wanted = in_state(seen, SubscriptionState.DISABLED, by=SYSTEM, reason=reason, now=at)
    if not subscriptions.change(conn, wanted, at):
        return False
    entry = AuditEntry(
        event_id=new_id(at, os.urandom(10)),
        occurred_at=at,
        kind=AuditKind.OPERATOR_ACTION,
        status=AuditStatus.SUBMITTED,
        channel=AuditChannel.API_OUTBOUND,
        actor=SYSTEM,
        target=seen.name,
        request_summary="subscription.disable",
        extra={"subscription_id": subscription_id, "reason": reason},
    )
    audit.add(conn, [entry])
    notices.add(conn, [Notice(DISABLED, subscription_id, {"reason": reason, "by": SYSTEM})], at)
    return True


def _warn(conn: Connection, key: str, percent: int, *, now: datetime | None) -> None:
    """Publish a warning, unless another node has."""
    changes: list[tuple[Breaker, Breaker]] = []
    breaker_rows.change_many(conn, {key: partial(_warned, percent=percent)}, changes)
    subscription_id = key.removeprefix(SUBSCRIPTION_KEY)
    found = [
        Notice(FAILING, subscription_id, {"error": after.last_error, "percent": after.warned_percent})
        for _, after in changes
    ]
    notices.add(conn, found, database_time(conn, now))


def _warned(breaker: Breaker, percent: int) -> Breaker:
    warning = due_warning(breaker, percent)
    return breaker if warning is None or breaker.failing_since is None else replace(breaker, warned_percent=warning)


def _lapse(conn: Connection, prefix: str, policy: BreakerPolicy, *, now: datetime | None) -> None:
    at = database_time(conn, now)
    keys = breaker_rows.stale(conn, prefix, at - timedelta(seconds=policy.lapse_s), LAPSE_BATCH)
    breaker_rows.change_many(conn, {key: partial(lapse, policy=policy, now=at) for key in keys})

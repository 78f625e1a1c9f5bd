"""Following: the results of published events, from central into the application's tables.

Two queries complete each other, and neither is trusted alone:

    by time    notifications that ended since the last query, with an overlap, because a notification becomes visible
               after the time at which it ended; every few seconds
    by id      rows that stay open, at growing intervals, shared among the relays; and after a start all rows in
               processing, because nobody asked while the relay was away

An event may end before the relay has recorded that it published it. Such a result is not remembered as seen, so that
the overlap brings it again.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from fieldpost.core.events.event import PAYLOAD_BYTES_MAX
from fieldpost.core.events.outbox import OutboxStatus
from fieldpost.core.events.relaying import NO_TEMPLATE, error_text, row_status
from fieldpost.core.events.result import EventState
from fieldpost.core.events.subscription import SUBSCRIPTION_KEY
from fieldpost.core.ids import derived_id
from fieldpost.core.text import LABEL_BYTES_MAX, truncate
from fieldpost.core.times import from_text, to_text
from fieldpost.outbox.relay.central import RelayClient, WireNotification, WireResults
from fieldpost.outbox.relay.database import RelayDatabase
from fieldpost.outbox.relay.options import RelayOptions
from fieldpost.outbox.relay.transactions import FIRST_ID, HistoryRow, OutboxTransactions, RowFacts

log = logging.getLogger("fieldpost.relay")

CHECKS_MAX = 500
NEVER = "9999-01-01T00:00:00Z"
"""Asks for no results, only for central's time."""

Seen = tuple[str, int, str]


class ResultFollower:
    """Follows the published rows of one outbox."""

    def __init__(
        self, database: RelayDatabase, transactions: OutboxTransactions, client: RelayClient, options: RelayOptions
    ) -> None:
        self._database = database
        self._transactions = transactions
        self._client = client
        self._overlap = timedelta(seconds=options.overlap_s)
        self._has_history = options.history
        self._since: str | None = None
        self._first_pass: str | None = FIRST_ID
        """The last id that the first pass has checked; None when it is done."""
        self._seen: set[Seen] = set()

    async def sweep(self) -> None:
        """Query by time, then by id. Raises CentralUnreachable, Unanswered or Unavailable."""
        if self._since is None:
            self._since = self._minus_overlap((await self._client.results_since(NEVER)).as_of)
        await self._query_by_time(self._since)
        while self._first_pass is not None:
            page = partial(self._transactions.processing_page, self._first_pass, CHECKS_MAX)
            ids = await self._database.run(page, is_read=True)
            await self._query_by_id(ids)
            self._first_pass = ids[-1] if len(ids) == CHECKS_MAX else None
        while True:
            ids = await self._database.run(lambda: self._transactions.choose_checks(CHECKS_MAX))
            await self._query_by_id(ids)
            if len(ids) < CHECKS_MAX:
                return

    async def _query_by_time(self, since: str) -> None:
        as_of, cursor = None, None
        seen: set[Seen] = set()
        while True:
            page = await self._client.results_since(since, cursor)
            as_of = as_of or page.as_of
            seen |= await self._apply(page, self._seen)
            if (cursor := page.next_cursor) is None:
                break
        self._seen, self._since = seen, self._minus_overlap(as_of)

    async def _query_by_id(self, ids: Sequence[str]) -> None:
        cursor = None
        while ids:
            page = await self._client.results_of(ids, cursor)
            await self._apply(page, set())
            if (cursor := page.next_cursor) is None:
                break

    async def _apply(self, page: WireResults, seen_before: set[Seen]) -> set[Seen]:
        """Write a page of results; the notifications that need not be applied again."""
        keys = {one.notification_id: (one.notification_id, one.cycle, one.status) for one in page.notifications}
        done = {key for key in keys.values() if key in seen_before}
        fresh = [one for one in page.notifications if keys[one.notification_id] not in done]
        old = {one.event_id for one in page.notifications} - {one.event_id for one in fresh}
        states = {one.event_id: one.state for one in page.events if one.event_id not in old}
        if not states:
            return done
        facts = await self._database.run(lambda: self._transactions.facts(states.keys()), is_read=True)
        changes = list(_changes(states, facts, fresh))
        unknown = [i for i, state in states.items() if state is EventState.UNKNOWN and i in facts]
        history = list(_history(fresh, facts)) if self._has_history else []
        await self._database.run(lambda: self._transactions.apply_results(changes, unknown, history))
        if unknown:
            log.warning("relay.published_again count=%d reason=central does not know these events", len(unknown))
        # A row that is not recorded as published yet gets its result with the overlap of a later query.
        early = {i for i, fact in facts.items() if not fact.is_published}
        return done | {keys[one.notification_id] for one in fresh if one.event_id not in early}

    def _minus_overlap(self, as_of: str) -> str:
        moment = from_text(as_of)
        assert moment is not None, "central's times are RFC 3339"
        return to_text(moment - self._overlap)


def _changes(
    states: Mapping[str, EventState], facts: Mapping[str, RowFacts], ended: Sequence[WireNotification]
) -> Iterable[tuple[str, OutboxStatus, str | None]]:
    errors = {one.event_id: one for one in ended if one.status in ("parked", "discarded")}
    for event_id, state in states.items():
        fact = facts.get(event_id)
        status = row_status(state, fact.status) if fact else None
        if fact is None or status is None or status is fact.status:
            continue
        error = None
        if status is OutboxStatus.FAILED:
            found = errors.get(event_id)
            code = f"notification.{found.status if found else 'parked'}"
            error = error_text(code, (found.error if found else None) or "a notification needs attention at central")
        elif status is OutboxStatus.TEMPLATE_NOT_FOUND:
            error = NO_TEMPLATE
        yield event_id, status, error


def _history(ended: Iterable[WireNotification], facts: Mapping[str, RowFacts]) -> Iterable[HistoryRow]:
    """One row per target and cycle. A notification that ended before it had targets has one for its list."""
    for one in ended:
        if (fact := facts.get(one.event_id)) is None:
            continue
        about = _about(fact)
        results = [
            (target.address, target.cycle, target.status == "delivered", target.settled_at, target.error)
            for target in one.targets
        ] or [(one.list_name, one.cycle, one.status == "delivered", None, None)]
        for address, cycle, is_sent, settled_at, error in results:
            yield HistoryRow(
                history_id=derived_id("history", one.event_id, one.notification_id, address, str(cycle)),
                event_id=one.event_id,
                event_type=fact.event_type,
                notification_id=one.notification_id,
                cycle=cycle,
                service=about["service"],
                group=about["group"],
                channel=one.type,
                # A subscription's name says more than its key.
                recipient=one.list_name if address.startswith(SUBSCRIPTION_KEY) else address,
                subject=one.subject,
                message=about["message"],
                status="sent" if is_sent else "failed",
                error=None if is_sent else error or one.error,
                at=settled_at or one.ended_at,
            )


def _about(fact: RowFacts) -> dict[str, str | None]:
    """Service, group and message, from the attributes or else from the payload."""
    payload, attributes = _object(fact.payload), _object(fact.attributes)
    found = {}
    for name in ("service", "group"):
        values = (attributes.get(name), payload.get(name), payload.get(f"{name}_id"))
        found[name] = next((truncate(str(v), LABEL_BYTES_MAX) for v in values if isinstance(v, str | int)), None)
    message = payload.get("message")
    # A payload may contain characters that no database stores.
    return {**found, "message": truncate(message, PAYLOAD_BYTES_MAX) if isinstance(message, str) else None}


def _object(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}

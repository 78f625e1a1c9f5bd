"""Taking in what senders submit: check, insert if absent, ack after the commit.

Each item is judged for itself and gets its own result, so that one bad item never holds back its neighbours:

    accepted    a new row, `pending`
    duplicate   the same id with the same content stands already: a lost ack, nothing changes
    rejected    it can never be taken: bad text, an id that stands with other content or from another site
    later       not now (the whole submit fails as Unavailable when the store does)

The row and its audit entry are one transaction. A conflict is audited; the first row stays as it is.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import structlog
from sqlalchemy import Connection

from fieldpost.central.store import arrivals, audit, lists
from fieldpost.central.store.arrivals import Arrival, Standing
from fieldpost.central.store.engine import Store
from fieldpost.clock import Clock
from fieldpost.core import text
from fieldpost.core.audit import SYSTEM, AuditEntry, AuditKind, AuditStatus
from fieldpost.core.errors import InvalidInput
from fieldpost.core.ids import new_ids, parse_notification_id
from fieldpost.core.lists import DEFAULT_TYPE
from fieldpost.core.notification import Provenance, Submission, digest, list_key
from fieldpost.core.times import from_text
from fieldpost.link.messages import ACCEPTED, DUPLICATE, ITEMS_MAX, REJECTED, Ack, Item, Result, Submit

log = structlog.get_logger()

ENQUEUED_TEXT_MAX = 64


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """[ingest]"""

    credits: int = 4 * ITEMS_MAX
    """How many items a sender may have on the way."""


class Ingest:
    """One for a central node, used by every connection."""

    def __init__(self, store: Store, clock: Clock, options: IngestOptions | None = None) -> None:
        self._store = store
        self._clock = clock
        self._options = options or IngestOptions()

    @property
    def credits(self) -> int:
        return self._options.credits

    async def submit(self, site: str, message: Submit) -> Ack:
        """Take a batch in; returns after the commit. Raises Unavailable when the store cannot, InvalidInput when the
        batch as a whole breaks a rule."""
        if len(message.items) > ITEMS_MAX:
            raise InvalidInput(
                "submit.too_many", f"items are {len(message.items)}, at most {ITEMS_MAX} are taken", field="items"
            )
        checked = [_check(item, site) for item in message.items]
        submissions = [c for c in checked if isinstance(c, Submission)]
        verdicts = await self._take(submissions) if submissions else {}
        results = tuple(c if isinstance(c, Result) else verdicts[id(c)] for c in checked)
        return Ack(message.seq, results, self._options.credits)

    async def _take(self, submissions: list[Submission]) -> dict[int, Result]:
        digests = {id(s): digest(s) for s in submissions}
        first = {s.notification_id: s for s in reversed(submissions)}
        now = self._clock.now()
        event_ids = new_ids(now, os.urandom(10 * 2 * len(submissions)))
        inserted, stood = await self._store.write(
            _insert, list(first.values()), digests, event_ids, now=self._store.now()
        )
        if inserted:
            self._store.wake.set()
        own = {i: Standing(s.provenance.site, digests[id(s)]) for i, s in first.items() if i in inserted}
        verdicts = {}
        conflicts = []
        for s in submissions:
            is_new = s.notification_id in inserted and first[s.notification_id] is s
            stands = (own | stood)[s.notification_id] if not is_new else None
            verdicts[id(s)] = _verdict(s, digests[id(s)], stands)
            if verdicts[id(s)].verdict == REJECTED:
                conflicts.append(s)
        if conflicts:
            await self._store.write(audit.add, _conflict_entries(conflicts, event_ids[len(submissions) :], now))
            log.warning(
                "submit.conflict", ids=[s.notification_id for s in conflicts], site=conflicts[0].provenance.site
            )
        return verdicts


def _insert(
    conn: Connection,
    submissions: list[Submission],
    digests: dict[int, bytes],
    event_ids: list[str],
    *,
    now: datetime | None,
) -> tuple[set[str], dict[str, Standing]]:
    types = lists.types_of(conn, {s.list_name for s in submissions})
    arrived = [_arrival(s, digests[id(s)], types.get(s.list_name, DEFAULT_TYPE)) for s in submissions]
    inserted = arrivals.insert_if_absent(conn, arrived, now=now)
    stood = arrivals.standing(conn, [s.notification_id for s in submissions if s.notification_id not in inserted])
    audit.add_for_notifications(
        conn,
        None,
        [
            audit.NotificationEntry(event_id, notification_id, None, AuditKind.NOTIFY_SEND, AuditStatus.SUBMITTED, None)
            for event_id, notification_id in zip(event_ids, inserted, strict=False)
        ],
    )
    return inserted, stood


def _arrival(s: Submission, digest_: bytes, type_: str) -> Arrival:
    # The site's time where it is one: shown to people and used for nothing else.
    enqueued_at = from_text(s.enqueued_at) if s.enqueued_at else None
    return Arrival(
        s, digest_, type_, list_key(s.list_name), enqueued_at, s.enqueued_at if enqueued_at is None else None
    )


def _check(item: Item, site: str) -> Submission | Result:
    """The submission, or the result that rejects it, naming field and rule."""
    try:
        if item.site is not None and item.site != site:
            raise InvalidInput("submit.other_site", "site differs from the token's site", field="site")
        return Submission(
            parse_notification_id(item.notification_id),
            text.check_list_name(item.list_name),
            text.check_subject(item.subject),
            text.check_body(item.body),
            Provenance(
                site,
                _optional(item.instance, "instance"),
                _optional(item.script, "script"),
                _optional(item.execution_id, "execution_id"),
                _optional(item.parent_execution_id, "parent_execution_id"),
            ),
            text.cut(item.enqueued_at, ENQUEUED_TEXT_MAX) if item.enqueued_at else None,
        )
    except InvalidInput as error:
        log.warning("submit.rejected", site=site, code=error.code, field=error.field)
        return Result(text.cut(item.notification_id, 64), REJECTED, error.code, error.message)


def _verdict(s: Submission, digest_: bytes, stands: Standing | None) -> Result:
    if stands is None:
        return Result(s.notification_id, ACCEPTED)
    if stands == Standing(s.provenance.site, digest_):
        return Result(s.notification_id, DUPLICATE)
    # Nothing is said of what stands there: it may be another site's.
    return Result(s.notification_id, REJECTED, "notification.conflict", "this id stands already with other content")


def _conflict_entries(conflicts: Iterable[Submission], event_ids: list[str], now: datetime) -> list[AuditEntry]:
    return [
        AuditEntry(
            event_id=event_id,
            occurred_at=now,
            kind=AuditKind.NOTIFY_SEND,
            status=AuditStatus.FAILED,
            actor=SYSTEM,
            correlation_id=s.notification_id,
            source_site_id=s.provenance.site,
            source_instance_id=s.provenance.instance,
            source_script=s.provenance.script,
            target=s.list_name,
            error_message="conflict: the id stands already with other content or from another site",
        )
        for event_id, s in zip(event_ids, conflicts, strict=False)
    ]


def _optional(value: str | None, field: str) -> str | None:
    return None if value is None else text.check_label(value, field)

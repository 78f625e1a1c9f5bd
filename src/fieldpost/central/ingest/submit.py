"""Taking in what senders submit: check, insert if absent, ack after the commit.

Each item is judged for itself and gets its own result, so that one bad item never holds back its neighbours:

    accepted    a new row, `pending`
    duplicate   the same id with the same content stands already: a lost ack, nothing changes
    rejected    it can never be taken: bad text, an id that stands with other content or from another site
    later       not now (the whole submit fails as Unavailable when the store does)

The row and its audit entry are one transaction. A conflict is audited; the first row stays as it is.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

import structlog

from fieldpost.central.ingest.fair_queue import Pace
from fieldpost.central.ingest.telemetry import MirrorOptions, Reports
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import arrivals, audit
from fieldpost.central.store.notifications.arrivals import StoredContent
from fieldpost.clock import Clock
from fieldpost.core import text
from fieldpost.core.audit import SYSTEM, AuditEntry, AuditKind, AuditStatus
from fieldpost.core.errors import ConfigError, InvalidInput, Unavailable
from fieldpost.core.ids import new_ids, parse_notification_id
from fieldpost.core.meter import Meter, Unmetered
from fieldpost.core.notification import Provenance, Submission, digest
from fieldpost.link.codec import too_many
from fieldpost.link.messages import ACCEPTED, DUPLICATE, ITEMS_MAX, REJECTED, Ack, Item, Result, Submit

log = structlog.get_logger()

ENQUEUED_TEXT_MAX = 64
LARGE = 100


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """[ingest]"""

    credits: int = 4 * ITEMS_MAX
    """How many items a sender may have on the way at most; what it is granted depends on the store and the others."""

    def __post_init__(self) -> None:
        if self.credits < 1:
            raise ConfigError("settings.range", "ingest.credits must be above 0", field="ingest.credits")


class Ingest:
    """One for a central node, used by every connection."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        options: IngestOptions | None = None,
        meter: Meter | None = None,
        mirror: MirrorOptions | None = None,
    ) -> None:
        self.reports = Reports(store, mirror)
        """What sites report of themselves."""
        self._store = store
        self._clock = clock
        self._options = options or IngestOptions()
        self._meter = meter or Unmetered()
        self._pace = Pace(self._options.credits, clock.monotonic)

    @property
    def credits(self) -> int:
        """How many items a sender may have on the way now."""
        return self._pace.credits(is_failing=self._store.last_failure is not None)

    async def submit(self, site: str, message: Submit, unfit: Mapping[int, Result] | None = None) -> Ack:
        """Take a batch in; returns after the commit. `unfit` answers what could not even be read, by its place.

        Raises Unavailable when the store cannot, InvalidInput when the batch as a whole breaks a rule.
        """
        unfit = unfit or {}
        if len(message.items) > ITEMS_MAX:
            raise too_many(len(message.items))
        checked = [_check(item, site) for item in message.items]
        if rejected := [*unfit.values(), *(c for c in checked if isinstance(c, Result))]:
            # One line for a batch: what a site gets wrong it gets wrong by the thousand.
            codes = dict(Counter(str(r.code) for r in rejected))
            log.warning("submit.rejected", site=site, codes=codes, ids=[r.notification_id for r in rejected[:10]])
        submissions = [c for c in checked if isinstance(c, Submission)]
        verdicts: dict[int, Result] = {}
        if submissions:
            async with self._pace.storing(site, len(submissions), has_more=_has_more(message)):
                verdicts = await self._take(site, submissions)
        results = [c if isinstance(c, Result) else verdicts[id(c)] for c in checked]
        for place in sorted(unfit):
            results.insert(place, unfit[place])
        for verdict, count in Counter(result.verdict for result in results).items():
            self._meter.submitted(verdict, count)
        return Ack(message.seq, tuple(results), self.credits)

    async def _take(self, site: str, submissions: list[Submission]) -> dict[int, Result]:
        """The results by the identity of each submission, since a batch may hold an id twice."""
        digests = {id(s): digest(s) for s in submissions}
        first = {s.notification_id: s for s in reversed(submissions)}
        arrived = [(s, digests[id(s)]) for s in first.values()]
        inserted = await self._store.write_one(arrivals.insert_if_absent, site, arrived, now=self._store.now())
        if inserted:
            self._store.wake.set()
        if len(inserted) == len(submissions):
            return {id(s): Result(s.notification_id, ACCEPTED) for s in submissions}
        others = [s.notification_id for s, _ in arrived if s.notification_id not in inserted]
        stood = await self._store.read(arrivals.standing, others)
        if len(stood) < len(others):
            # A purge came between: what was just inserted is a duplicate when it comes again, the rest is new then.
            raise Unavailable("store.changed", "what stood under these ids was purged just now; send them again")
        verdicts = {}
        conflicts = []
        for s in submissions:
            own = first[s.notification_id]
            if s.notification_id not in inserted:
                verdicts[id(s)] = _verdict(s, digests[id(s)], stood[s.notification_id])
            elif own is s:
                verdicts[id(s)] = Result(s.notification_id, ACCEPTED)
            else:
                verdicts[id(s)] = _verdict(s, digests[id(s)], StoredContent(site, digests[id(own)]))
            if verdicts[id(s)].verdict == REJECTED:
                conflicts.append(s)
        if conflicts:
            await self._store.write(audit.add, _conflict_entries(conflicts, self._clock.now()))
            log.warning("submit.conflict", ids=[s.notification_id for s in conflicts], site=site)
        return verdicts


def _has_more(message: Submit) -> bool:
    """Whether the sender has a backlog; one of an older version does not say, but its batches are large then."""
    return message.more if message.more is not None else len(message.items) >= LARGE


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
            _provenance(site, item.instance, item.script, item.execution_id, item.parent_execution_id),
            text.truncate(item.enqueued_at, ENQUEUED_TEXT_MAX) if item.enqueued_at else None,
        )
    except InvalidInput as error:
        return Result(text.truncate(item.notification_id, 64), REJECTED, error.code, error.message)


def _verdict(s: Submission, digest_: bytes, stands: StoredContent) -> Result:
    if stands == StoredContent(s.provenance.site, digest_):
        return Result(s.notification_id, DUPLICATE)
    # Nothing is said of what stands there: it may be another site's.
    return Result(s.notification_id, REJECTED, "notification.conflict", "this id stands already with other content")


def _conflict_entries(conflicts: Sequence[Submission], now: datetime) -> list[AuditEntry]:
    event_ids = new_ids(now, os.urandom(10 * len(conflicts)))
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
        for event_id, s in zip(event_ids, conflicts, strict=True)
    ]


@lru_cache(maxsize=1024)
def _provenance(
    site: str, instance: str | None, script: str | None, execution_id: str | None, parent_execution_id: str | None
) -> Provenance:
    """The same scripts send again and again, so their provenance is checked and made once."""
    return Provenance(
        site,
        _optional(instance, "instance"),
        _optional(script, "script"),
        _optional(execution_id, "execution_id"),
        _optional(parent_execution_id, "parent_execution_id"),
    )


def _optional(value: str | None, field: str) -> str | None:
    return None if value is None else text.check_label(value, field)

"""Ingest of submitted notifications: check, insert if absent, ack after the commit.

Each item is checked on its own and gets its own result, so an invalid item does not hold back the rest of its batch:

    accepted    a new row, `pending`
    duplicate   the id is already stored with the same content: an ack was lost, nothing changes
    rejected    permanently refused: invalid text, or the id is stored with other content or for another site
    later       neither stored nor refused, because a purge ran at the same moment, or the site has reached a ceiling:
                send it again (the whole submit raises Unavailable if the store is unavailable)

A row and its audit entry are written in one transaction. A conflict is audited; the stored row does not change.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import lru_cache

import structlog
from sqlalchemy.exc import IntegrityError

from fieldpost.central.ingest.epochs import EpochLeases
from fieldpost.central.ingest.fair_queue import LARGE_BATCH, Pace
from fieldpost.central.ingest.health import HealthReports
from fieldpost.central.ingest.mirror import CallMirrors, MirrorOptions
from fieldpost.central.ingest.publish import Publisher, PublishOptions
from fieldpost.central.ingest.receipts import ReceiptIngest
from fieldpost.central.ingest.site_ceilings import WAIT_S, SiteCeilingGuard
from fieldpost.central.rendering.composer import Composer
from fieldpost.central.secrets.keyring import Keyring
from fieldpost.central.store.engine.failures import is_duplicate_key
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import arrivals, audit
from fieldpost.central.store.notifications.arrivals import StoredContent
from fieldpost.clock import Clock
from fieldpost.core import text
from fieldpost.core.alarm import check_incident, check_severity
from fieldpost.core.audit import SYSTEM, AuditEntry, AuditKind, AuditStatus
from fieldpost.core.errors import InvalidInput, out_of_range
from fieldpost.core.ids import new_ids, parse_notification_id, parse_sent_id
from fieldpost.core.meter import Meter, Unmetered
from fieldpost.core.notification import Provenance, Submission, digest
from fieldpost.core.sites.usage import SiteCeilings
from fieldpost.link.codec import too_many
from fieldpost.link.messages import ACCEPTED, DUPLICATE, ITEMS_MAX, LATER, REJECTED, Ack, Item, Result, Submit

log = structlog.get_logger()

ENQUEUED_TEXT_MAX = 64
SITE_FULL = "site.full"


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """[ingest]"""

    credits: int = 4 * ITEMS_MAX
    """The most items a sender may have in flight. The number granted depends on store speed and other senders."""
    site_rows_max: int = SiteCeilings().rows_max
    """The most pending, retrying and parked notifications of one site, to within a sixteenth per node. Beyond it the
    site keeps its notifications and sends them again."""
    site_bytes_max: int = SiteCeilings().bytes_max
    """The same for the bytes of their subjects and bodies."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if (value := getattr(self, field.name)) < 1:
                raise out_of_range(f"ingest.{field.name}", f"must be at least 1, got {value}")

    @property
    def ceilings(self) -> SiteCeilings:
        return SiteCeilings(self.site_rows_max, self.site_bytes_max)


class Ingest:
    """Stores incoming data of one central node; shared by all its connections."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        options: IngestOptions | None = None,
        meter: Meter | None = None,
        mirror: MirrorOptions | None = None,
        events: PublishOptions | None = None,
        composer: Composer | None = None,
        receipts: ReceiptIngest | None = None,
    ) -> None:
        self.receipts = receipts or ReceiptIngest(store, {}, Keyring())
        self.mirrors = CallMirrors(store, mirror)
        self.health = HealthReports(store)
        self.epochs = EpochLeases(store)
        self._store = store
        self._clock = clock
        self._options = options or IngestOptions()
        self._meter = meter or Unmetered()
        self._ceilings = SiteCeilingGuard(store, clock, self._options.ceilings)
        self._pace = Pace(self._options.credits, clock.monotonic, self._store_group)
        self.publisher = Publisher(store, self._pace, events, composer)

    @property
    def credits(self) -> int:
        """How many items a sender may have in flight now."""
        return self._pace.credits(is_failing=self._store.last_failure is not None)

    async def submit(
        self, site: str, message: Submit, unfit: Mapping[int, Result] | None = None, *, are_derived: bool = False
    ) -> Ack:
        """Store a batch; returns after the commit. `unfit` holds the results of undecodable items by their index.

        `are_derived` states that central derived the ids; ids of that version are refused from senders.

        Raises Unavailable if the store is unavailable, InvalidInput if the batch as a whole is invalid.
        """
        unfit = unfit or {}
        if len(message.items) > ITEMS_MAX:
            raise too_many(len(message.items))
        checked = [_check(item, site, are_derived) for item in message.items]
        if rejected := [*unfit.values(), *(c for c in checked if isinstance(c, Result))]:
            # One line per batch: a faulty site sends invalid items by the thousand.
            codes = dict(Counter(str(r.code) for r in rejected))
            log.warning("submit.rejected", site=site, codes=codes, ids=[r.notification_id for r in rejected[:10]])
        submissions = [c for c in checked if isinstance(c, Submission)]
        verdicts: dict[int, Result] = {}
        if submissions:
            # Older senders do not state whether they have more; a large batch implies it.
            has_more = message.more if message.more is not None else len(message.items) >= LARGE_BATCH
            verdicts = await self._pace.submit(site, len(submissions), submissions, has_more=has_more)
        results = [c if isinstance(c, Result) else verdicts[id(c)] for c in checked]
        for index in sorted(unfit):
            results.insert(index, unfit[index])
        for verdict, count in Counter(result.verdict for result in results).items():
            self._meter.submitted(verdict, count)
        return Ack(message.seq, tuple(results), self.credits)

    async def _store_group(self, group: Sequence[list[Submission]]) -> list[dict[int, Result]]:
        """Store submits of several sites in one transaction; each picks its own results."""
        verdicts: dict[int, Result] = {}
        admitted = []
        for submissions in group:
            if await self._ceilings.is_full(submissions[0].provenance.site):
                verdicts |= await self._put_off(submissions)
            else:
                admitted.append(submissions)
        part_counts: dict[str, int] = {}
        if admitted:
            stored, part_counts = await self._store_all([s for own in admitted for s in own], is_shared=len(group) > 1)
            verdicts |= stored
        for submissions in admitted:
            if accepted := [s for s in submissions if verdicts[id(s)].verdict == ACCEPTED]:
                rows = [s for s in accepted for _ in range(part_counts.get(s.notification_id, 1))]
                self._ceilings.add(rows[0].provenance.site, rows)
        return [verdicts] * len(group)

    async def _store_all(
        self, submissions: list[Submission], *, is_shared: bool
    ) -> tuple[dict[int, Result], dict[str, int]]:
        """Results by `id()` of each submission, since a batch may contain a notification id twice; and the numbers of
        parts of new wholes, by id."""
        digests = {id(s): digest(s) for s in submissions}
        first = {s.notification_id: s for s in reversed(submissions)}
        arrived = [(s, digests[id(s)]) for s in first.values()]
        try:
            inserted = await self._store.write_one(arrivals.insert_if_absent, arrived, now=self._store.now())
        except IntegrityError as error:
            if is_shared or not is_duplicate_key(error):
                raise
            # The statement waited for a purge to commit, whose tombstones it does not see; but the audit has the entry
            # of each first send. Nothing was inserted: purged items are duplicates, the others are repeated.
            inserted = set()
        if inserted:
            self._store.wake.set()
        if len(inserted) == len(submissions):
            return {id(s): Result(s.notification_id, ACCEPTED) for s in submissions}, {}
        others = [one for one in arrived if one[0].notification_id not in inserted]
        stored, part_counts = await self._store_others(others, is_shared=is_shared)
        inserted |= part_counts.keys()
        verdicts = {}
        conflicts = []
        for s in submissions:
            own = first[s.notification_id]
            if s.notification_id not in inserted:
                verdicts[id(s)] = _verdict(s, digests[id(s)], stored.get(s.notification_id))
            elif own is s:
                verdicts[id(s)] = Result(s.notification_id, ACCEPTED)
            else:
                verdicts[id(s)] = _verdict(s, digests[id(s)], StoredContent(own.provenance.site, digests[id(own)]))
            if verdicts[id(s)].verdict == REJECTED:
                conflicts.append(s)
        if conflicts:
            await self._store.write(audit.add, _conflict_entries(conflicts, self._clock.now()))
            for site in sorted({s.provenance.site for s in conflicts}):
                ids = [s.notification_id for s in conflicts if s.provenance.site == site]
                log.warning("submit.conflict", ids=ids, site=site)
        return verdicts, part_counts

    async def _store_others(
        self, others: Sequence[tuple[Submission, bytes]], *, is_shared: bool
    ) -> tuple[dict[str, StoredContent], dict[str, int]]:
        """The stored content of known ids; the others are stored if their list is a list of lists."""
        stored = await self._store.confirm(arrivals.stored_content, [s.notification_id for s, _ in others])
        fresh = [one for one in others if one[0].notification_id not in stored]
        if not fresh:
            return stored, {}
        part_counts: dict[str, int] = {}
        try:
            part_counts = await self._store.write(arrivals.insert_wholes, fresh, now=self._store.now())
        except IntegrityError as error:
            # The id became a notification at this moment, or its purge committed.
            if is_shared or not is_duplicate_key(error):
                raise
        if part_counts:
            self._store.wake.set()
        if left := [s.notification_id for s, _ in fresh if s.notification_id not in part_counts]:
            stored |= await self._store.confirm(arrivals.stored_content, left)
        return stored, part_counts

    async def _put_off(self, submissions: Sequence[Submission]) -> dict[int, Result]:
        """Results of a full site: what is stored already is a duplicate, all else must wait."""
        log.warning("submit.put_off", site=submissions[0].provenance.site, count=len(submissions))
        stored = await self._store.confirm(arrivals.stored_content, [s.notification_id for s in submissions])
        return {
            id(s): _verdict(s, digest(s), found) if (found := stored.get(s.notification_id)) else _full(s)
            for s in submissions
        }


def _full(s: Submission) -> Result:
    error = "the site has reached its maximum of undelivered notifications"
    return Result(s.notification_id, LATER, SITE_FULL, error, WAIT_S)


def _check(item: Item, site: str, is_derived: bool) -> Submission | Result:
    """Return the submission, or a result that rejects it with field and rule."""
    try:
        if item.site is not None and item.site != site:
            raise InvalidInput("submit.other_site", f"site must be {site!r}, the site of the token", field="site")
        return Submission(
            parse_notification_id(item.notification_id) if is_derived else parse_sent_id(item.notification_id),
            text.check_list_name(item.list_name),
            text.check_subject(item.subject),
            text.check_body(item.body),
            _provenance(site, item.instance, item.script, item.execution_id, item.parent_execution_id),
            text.truncate(item.enqueued_at, ENQUEUED_TEXT_MAX) if item.enqueued_at else None,
            check_severity(item.severity),
            check_incident(item.incident),
            item.is_cleared,
        )
    except InvalidInput as error:
        return Result(text.truncate(item.notification_id, 64), REJECTED, error.code, error.message)


def _verdict(s: Submission, digest_: bytes, stored: StoredContent | None) -> Result:
    if stored is None:
        return Result(s.notification_id, LATER, "store.changed", "rows were purged during the submit; send it again")
    if stored == StoredContent(s.provenance.site, digest_):
        return Result(s.notification_id, DUPLICATE)
    # Reveal nothing about the stored row: it may belong to another site.
    return Result(s.notification_id, REJECTED, "notification.conflict", "this id is already stored with other content")


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
            error_message="conflict: this id is already stored with other content or for another site",
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

"""What sites report of themselves: the mirror of their cached calls, and their health.

Whose it is comes from the token alone. A site is believed about its own calls, which are kept under its name and shown
as what it reports; it cannot touch another's, nor bring back an older state of its own: a report counts only when its
version is higher (`core.cached_call`). Each row is judged for itself; one that breaks a rule is left out, counted and
told, and its neighbours are taken.

Reconciliation is a conversation of single questions, each asked from the cursor that the answer before it left. No
state of it lives anywhere but in the site's row, so that any node, or this one after a restart, goes on where it ended.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import isfinite

import structlog
from sqlalchemy import Connection

from fieldpost.central.store.engine.batcher import Batcher
from fieldpost.central.store.engine.moment import moment
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.sites import cached_calls, mirrors
from fieldpost.central.store.sites import health as site_health
from fieldpost.core.errors import ConfigError, InvalidInput
from fieldpost.core.ids import is_id
from fieldpost.core.sites import call_mirror
from fieldpost.core.sites.call_mirror import BufferPosition, CallReport, Mirror, Stretch
from fieldpost.core.sites.health import SiteHealth, SiteReport
from fieldpost.core.sites.message import CallStatus, Category
from fieldpost.core.text import LABEL_BYTES_MAX, check_label, truncate
from fieldpost.core.times import from_text
from fieldpost.link.messages import ITEMS_MAX, CallRow, Health, Reconcile, ReconcileAnswer, Telemetry, TelemetryAck

log = structlog.get_logger()

COUNT_MAX = 2**53
TARGET_BYTES_MAX = 512
NAMES_MAX = 16
"""How many categories or severities a report may name: there are three of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOptions:
    """[mirror]"""

    reconcile_interval_s: float = 300.0
    """How often central asks a connected site for changes that telemetry may have missed; at once when it connects."""
    batch_rows: int = ITEMS_MAX
    """How many rows it asks for at a time; at most 500."""

    def __post_init__(self) -> None:
        if not 1 <= self.reconcile_interval_s <= 86400:
            raise ConfigError(
                "settings.range", "mirror.reconcile_interval_s must be 1 to 86400", field="mirror.reconcile_interval_s"
            )
        if not 1 <= self.batch_rows <= ITEMS_MAX:
            raise ConfigError(
                "settings.range", f"mirror.batch_rows must be 1 to {ITEMS_MAX}", field="mirror.batch_rows"
            )


class Reports:
    """One for a central node, used by every control connection."""

    def __init__(self, store: Store, options: MirrorOptions | None = None) -> None:
        self._store = store
        self.options = options or MirrorOptions()
        # What every site says or is asked when it comes, and sites come by the thousand after a restart.
        self._questions = Batcher(self._find_mirrors)
        self._answers = Batcher(self._take_answers)
        self._healths = Batcher(self._keep_healths)

    async def telemetry(self, site: str, told: Telemetry) -> TelemetryAck:
        """Take what the site tells of its calls; returns after the commit."""
        stretch = Stretch(_incarnation(told.incarnation), told.after, told.until, told.forgotten)
        if stretch.until < stretch.after:
            raise InvalidInput("telemetry.range", "until must not lie before after", field="until")
        reports, refused = _reports(told.rows)
        cursor = await self._store.write(
            _take, site, stretch, reports, refused, from_text(told.sent_at), now=self._store.now()
        )
        _tell_refused(site, refused)
        log.debug("telemetry.taken", site=site, rows=len(told.rows), cursor=cursor)
        return TelemetryAck(min(cursor, told.until))

    async def question(self, site: str) -> Reconcile:
        """What to ask the site, so that the mirror of its calls becomes whole."""
        return self._ask(await self._questions.submit(site))

    async def answer(self, site: str, told: ReconcileAnswer) -> Reconcile | None:
        """Take the answer in; the next question, or None when the mirror is whole, or the site gets no further."""
        stretch = Stretch(_incarnation(told.incarnation), told.after, told.until, told.forgotten)
        standing = BufferPosition(told.high, told.has_more, told.has_gone_back)
        reports, refused = _reports(told.rows)
        answer = _Answer(site, stretch, standing, reports, refused, from_text(told.sent_at))
        # Rows take their time; most answers have none.
        taken = (await self._take_answers([answer]))[0] if reports else await self._answers.submit(answer)
        before, after, is_whole = taken
        _tell_refused(site, refused)
        if before is not None and after.replaced_count > before.replaced_count:
            log.warning("mirror.replaced", site=site, incarnation=after.incarnation, cursor=before.cursor)
        if is_whole:
            return None
        if before is not None and (before.cursor, before.round) == (after.cursor, after.round):
            log.warning("mirror.stalled", site=site, cursor=after.cursor)
            return None
        return self._ask(after)

    async def reread(self, site: str) -> None:
        """Let the next question begin at the site's first change, whatever is known."""
        await self._store.write(_reread, site)

    async def health(self, site: str, told: Health) -> None:
        """Keep the site's newest report."""
        report = SiteReport(
            version=_line(told.version, 64),
            backlog=_counts(told.backlog, "backlog"),
            oldest_age_s=_seconds(told.oldest_age_s),
            parked=_count(told.parked, "parked"),
            rejected=_count(told.rejected, "rejected"),
            disk_free_bytes=None if told.disk_free_bytes is None else _count(told.disk_free_bytes, "disk_free_bytes"),
            events=_counts(told.events, "events"),
            is_forwarding=told.is_forwarding,
            forward_error=None if told.forward_error is None else truncate(told.forward_error),
            failing_for_s=None if told.failing_for_s is None else _seconds(told.failing_for_s),
            uptime_s=_seconds(told.uptime_s),
        )
        await self._healths.submit((site, report, from_text(told.sent_at)))

    def _ask(self, mirror: Mirror | None) -> Reconcile:
        if mirror is None:
            return Reconcile(0, self.options.batch_rows)
        return Reconcile(mirror.cursor, self.options.batch_rows, mirror.high)

    async def _find_mirrors(self, sites: Sequence[str]) -> Sequence[Mirror | None]:
        found = await self._store.read(mirrors.load_all, sites)
        return [found.get(site) for site in sites]

    async def _take_answers(self, answers: "Sequence[_Answer]") -> "Sequence[_Taken]":
        return await self._store.write(_take_answers, answers, now=self._store.now())

    async def _keep_healths(self, told: "Sequence[_Health]") -> Sequence[None]:
        await self._store.write(_keep_healths, told, now=self._store.now())
        return [None] * len(told)


@dataclass(frozen=True, slots=True)
class _Answer:
    """A site's answer to a reconciliation, checked."""

    site: str
    stretch: Stretch
    standing: BufferPosition
    reports: Sequence[CallReport]
    refused: Counter[str]
    sent_at: datetime | None


_Taken = tuple[Mirror | None, Mirror, bool]
"""The mirror before and after an answer, and whether it is whole now."""
_Health = tuple[str, SiteReport, datetime | None]
"""A site's report, and when it says that it sent it."""


def _take(
    conn: Connection,
    site: str,
    stretch: Stretch,
    reports: list[CallReport],
    refused: Counter[str],
    sent_at: datetime | None,
    *,
    now: datetime | None,
) -> int:
    mirrors.lock(conn, [site])
    at = moment(conn, now)
    after = _noting(call_mirror.apply_telemetry(mirrors.load(conn, site), site, stretch, at), refused)
    mirrors.save(conn, [after])
    if call_mirror.is_contiguous(after, stretch):
        cached_calls.apply(conn, site, stretch.incarnation, after.round, reports, sent_at=sent_at, now=at)
    return after.cursor


def _take_answers(conn: Connection, answers: Sequence[_Answer], *, now: datetime | None) -> list[_Taken]:
    sites = [answer.site for answer in answers]
    mirrors.lock(conn, sites)
    at = moment(conn, now)
    known = mirrors.load_all(conn, sites)
    taken = []
    for told in answers:
        before, incarnation = known.get(told.site), told.stretch.incarnation
        after, is_whole = call_mirror.apply_answer(before, told.site, told.stretch, told.standing, at)
        known[told.site] = _noting(after, told.refused)
        if call_mirror.is_contiguous(after, told.stretch):
            cached_calls.apply(conn, told.site, incarnation, after.round, told.reports, sent_at=told.sent_at, now=at)
        if call_mirror.ended_round(before, after, is_whole):
            cached_calls.mark_missing(conn, told.site, after.round, now=at)
        taken.append((before, after, is_whole))
    mirrors.save(conn, known.values())
    return taken


def _reread(conn: Connection, site: str) -> None:
    mirrors.lock(conn, [site])
    mirror = mirrors.load(conn, site)
    if mirror is not None:
        mirrors.save(conn, [call_mirror.reread(mirror, mirror.forgotten)])


def _keep_healths(conn: Connection, told: Sequence[_Health], *, now: datetime | None) -> None:
    at = moment(conn, now)
    kept = []
    for site, report, sent_at in told:
        offset_s = (sent_at - at).total_seconds() if sent_at is not None else 0.0
        kept.append(SiteHealth(site=site, received_at=at, report=report, clock_offset_s=offset_s))
    site_health.keep(conn, kept)


def _noting(mirror: Mirror, refused: Counter[str]) -> Mirror:
    if not refused:
        return mirror
    codes = ", ".join(f"{code} ({count})" for code, count in refused.most_common(5))
    return replace(
        mirror,
        refused_count=mirror.refused_count + refused.total(),
        trouble=truncate(f"rows that break a rule were left out: {codes}"),
    )


def _tell_refused(site: str, refused: Counter[str]) -> None:
    if refused:
        log.warning("telemetry.refused", site=site, codes=dict(refused))


def _reports(rows: tuple[CallRow, ...]) -> tuple[list[CallReport], Counter[str]]:
    """The rows that can be taken, each call once by its newest version, and why the others cannot."""
    if len(rows) > ITEMS_MAX:
        raise InvalidInput("telemetry.too_many", f"rows are {len(rows)}, at most {ITEMS_MAX} are taken", field="rows")
    newest: dict[str, CallReport] = {}
    refused: Counter[str] = Counter()
    for row in rows:
        try:
            report = _report(row)
        except InvalidInput as error:
            refused[error.code] += 1
            continue
        known = newest.get(report.call_id)
        if known is None or report.version > known.version:
            newest[report.call_id] = report
    return list(newest.values()), refused


def _report(row: CallRow) -> CallReport:
    if not is_id(row.call_id):
        raise InvalidInput("operation.bad_id", "call_id is no id", field="call_id")
    try:
        category, status = Category(row.category), CallStatus(row.status)
    except ValueError:
        raise InvalidInput("operation.unknown_word", "category or status is no word that is known") from None
    if not category.is_tracked:
        raise InvalidInput("operation.not_tracked", "a notification is no cached call", field="category")
    if not 1 <= row.version <= COUNT_MAX:
        raise InvalidInput("operation.version", f"version must be 1 to {COUNT_MAX}", field="version")
    return CallReport(
        call_id=row.call_id,
        category=category,
        target_summary=_line(row.target, TARGET_BYTES_MAX),
        status=status,
        retry_count=_count(row.retry_count, "retry_count"),
        last_error=None if row.last_error is None else truncate(row.last_error),
        http_status=row.http_status if row.http_status is not None and 100 <= row.http_status <= 999 else None,
        instance=_label(row.instance),
        script=_label(row.script),
        execution_id=_label(row.execution_id),
        parent_execution_id=_label(row.parent_execution_id),
        created_at=_time(row.created_at),
        updated_at=_time(row.updated_at),
        terminal_at=_time(row.terminal_at),
        version=row.version,
    )


def _incarnation(text: str) -> str:
    return check_label(text, "incarnation")


def _label(text: str | None) -> str | None:
    return None if text is None else _line(text, LABEL_BYTES_MAX)


def _line(text: str, bytes_max: int) -> str:
    """What a site wrote, as one line that can be stored and shown."""
    return truncate("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text), bytes_max)


def _time(text: str | None) -> datetime | None:
    return None if text is None else from_text(text)


def _seconds(value: float) -> float:
    return min(max(value, 0.0), float(COUNT_MAX)) if isfinite(value) else 0.0


def _count(value: int, field: str) -> int:
    if not 0 <= value <= COUNT_MAX:
        raise InvalidInput("count.range", f"{field} must be 0 to {COUNT_MAX}", field=field)
    return value


def _counts(values: dict[str, int], field: str) -> dict[str, int]:
    if len(values) > NAMES_MAX:
        raise InvalidInput("health.too_many", f"{field} names more than {NAMES_MAX} kinds", field=field)
    return {_line(name, 64): _count(value, field) for name, value in values.items()}

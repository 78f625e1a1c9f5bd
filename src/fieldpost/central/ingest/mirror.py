"""The mirror: central's copy of the sites' cached calls, fed by telemetry and reconciliation.

A site is identified by its token alone. Of a pair, only the leader's reports enter the mirror: a former leader that
does not know of its end yet would report an older state of the buffer. A site can report only its own calls, and it
cannot restore an older state of a call: a report is applied only if its version is higher (`core.sites.call_mirror`).
Rows are checked one by one; an invalid row is skipped, counted and logged, and the rest of the batch is applied.

Reconciliation is a sequence of single questions, each starting at the cursor that the previous answer left. Its state
is stored only in the site's row of mirrors, so any node can continue it, also after a restart.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog
from sqlalchemy import Connection

from fieldpost.central.ingest.health import COUNT_MAX, check_count
from fieldpost.central.store.engine.batcher import Batcher
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.sites import cached_calls, epochs, mirrors
from fieldpost.central.store.sites.epochs import PairLeader
from fieldpost.core.errors import Conflict, InvalidInput, out_of_range
from fieldpost.core.ids import parse_call_id
from fieldpost.core.sites import call_mirror
from fieldpost.core.sites.call_mirror import BufferPosition, Mirror, Stretch
from fieldpost.core.sites.message import CallReport, CallStatus, Category
from fieldpost.core.sites.node import FIRST_NODE, SiteNode
from fieldpost.core.text import LABEL_BYTES_MAX, check_label, printable_line, truncate
from fieldpost.core.times import from_text
from fieldpost.link.messages import ITEMS_MAX, CallRow, Reconcile, ReconcileAnswer, Telemetry, TelemetryAck

log = structlog.get_logger()

TARGET_BYTES_MAX = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOptions:
    """[mirror]"""

    reconcile_interval_s: float = 300.0
    """Interval at which central asks a connected site for changes that telemetry missed. It also asks on connect."""
    batch_rows: int = ITEMS_MAX
    """Rows per reconciliation answer, at most 500."""

    def __post_init__(self) -> None:
        if not 1 <= self.reconcile_interval_s <= 86400:
            raise out_of_range("mirror.reconcile_interval_s", "must be between 1 and 86400")
        if not 1 <= self.batch_rows <= ITEMS_MAX:
            raise out_of_range("mirror.batch_rows", f"must be between 1 and {ITEMS_MAX}")


class CallMirrors:
    """Applies what sites report about their cached calls. One per central node, shared by its control connections."""

    def __init__(self, store: Store, options: MirrorOptions | None = None) -> None:
        self._store = store
        self.options = options or MirrorOptions()
        # Every site is asked, and answers, when it connects; thousands connect at the same time after a restart.
        self._questions = Batcher(self._find_mirrors)
        self._answers = Batcher(self._take_answers)

    async def telemetry(self, site: str, message: Telemetry, node: int = FIRST_NODE) -> TelemetryAck:
        """Apply changed calls of this node; returns after the commit. Raises Conflict if another node leads."""
        stretch = Stretch(_incarnation(message.incarnation), message.after, message.until, message.forgotten)
        if stretch.until < stretch.after:
            raise InvalidInput("telemetry.range", "until must not be before after", field="until")
        reports, refused = _reports(message.rows)
        cursor = await self._store.write(
            _take, SiteNode(site, node), stretch, reports, refused, from_text(message.sent_at), now=self._store.now()
        )
        _log_refused(site, refused)
        log.debug("telemetry.taken", site=site, rows=len(message.rows), cursor=cursor)
        return TelemetryAck(min(cursor, message.until))

    async def question(self, site: str) -> Reconcile:
        """The next question to ask the site to complete its mirror."""
        return self._ask(await self._questions.submit(site))

    async def answer(self, site: str, message: ReconcileAnswer, node: int = FIRST_NODE) -> Reconcile | None:
        """Apply an answer; return the next question, or None if the mirror is complete or makes no progress.

        The answer of a node that does not lead any more is dropped: the leader is asked too.
        """
        stretch = Stretch(_incarnation(message.incarnation), message.after, message.until, message.forgotten)
        position = BufferPosition(message.high, message.has_more, message.has_gone_back)
        reports, refused = _reports(message.rows)
        answer = _Answer(SiteNode(site, node), stretch, position, reports, refused, from_text(message.sent_at))
        # Answers with rows are slow to write. Most have no rows and are batched.
        taken = (await self._take_answers([answer]))[0] if reports else await self._answers.submit(answer)
        if taken is None:
            log.info("mirror.not_leading", site=site, node=node)
            return None
        before, after, is_whole = taken
        _log_refused(site, refused)
        if before is not None and after.replaced_count > before.replaced_count:
            log.warning("mirror.replaced", site=site, incarnation=after.incarnation, cursor=before.cursor)
        if is_whole:
            return None
        if before is not None and (before.cursor, before.round) == (after.cursor, after.round):
            log.warning("mirror.stalled", site=site, cursor=after.cursor)
            return None
        return self._ask(after)

    async def reread(self, site: str) -> None:
        """Restart reconciliation at the first change of the site's buffer."""
        await self._store.write(_reread, site)

    def _ask(self, mirror: Mirror | None) -> Reconcile:
        if mirror is None:
            return Reconcile(0, self.options.batch_rows)
        return Reconcile(mirror.cursor, self.options.batch_rows, mirror.high)

    async def _find_mirrors(self, sites: Sequence[str]) -> Sequence[Mirror | None]:
        found = await self._store.read(mirrors.load_all, sites)
        return [found.get(site) for site in sites]

    async def _take_answers(self, answers: "Sequence[_Answer]") -> "Sequence[_Taken | None]":
        return await self._store.write(_take_answers, answers, now=self._store.now())


@dataclass(frozen=True, slots=True)
class _Answer:
    """A checked reconciliation answer."""

    sender: SiteNode
    stretch: Stretch
    position: BufferPosition
    reports: Sequence[CallReport]
    refused: Counter[str]
    sent_at: datetime | None

    @property
    def site(self) -> str:
        return self.sender.site


_Taken = tuple[Mirror | None, Mirror, bool]
"""The mirror before and after an answer, and whether it is complete now."""


def _take(
    conn: Connection,
    sender: SiteNode,
    stretch: Stretch,
    reports: list[CallReport],
    refused: Counter[str],
    sent_at: datetime | None,
    *,
    now: datetime | None,
) -> int:
    site = sender.site
    mirrors.lock(conn, [site])
    if not _leads(sender, epochs.leaders(conn, [site])):
        raise Conflict(
            "epoch.not_leading",
            f"node {sender.node} of site {site!r} does not hold the highest epoch",
            hint="the leader reports the calls of the site",
        )
    at = database_time(conn, now)
    after = _with_refused(call_mirror.apply_telemetry(mirrors.load(conn, site), site, stretch, at), refused)
    mirrors.save(conn, [after])
    if call_mirror.is_contiguous(after, stretch):
        cached_calls.apply(conn, site, stretch.incarnation, after.round, reports, sent_at=sent_at, now=at)
    return after.cursor


def _take_answers(conn: Connection, answers: Sequence[_Answer], *, now: datetime | None) -> list[_Taken | None]:
    sites = [answer.site for answer in answers]
    mirrors.lock(conn, sites)
    at = database_time(conn, now)
    known = mirrors.load_all(conn, sites)
    leaders = epochs.leaders(conn, sites)
    taken: list[_Taken | None] = []
    for answer in answers:
        if not _leads(answer.sender, leaders):
            taken.append(None)
            continue
        before, incarnation = known.get(answer.site), answer.stretch.incarnation
        after, is_whole = call_mirror.apply_answer(before, answer.site, answer.stretch, answer.position, at)
        known[answer.site] = _with_refused(after, answer.refused)
        if call_mirror.is_contiguous(after, answer.stretch):
            cached_calls.apply(
                conn, answer.site, incarnation, after.round, answer.reports, sent_at=answer.sent_at, now=at
            )
        if call_mirror.ended_round(before, after, is_whole):
            cached_calls.mark_missing(conn, answer.site, after.round, now=at)
        taken.append((before, after, is_whole))
    mirrors.save(conn, known.values())
    return taken


def _leads(sender: SiteNode, leaders: Mapping[str, PairLeader]) -> bool:
    """Whether this node reports the calls of its site; the only node of a site does."""
    return sender.site not in leaders or leaders[sender.site].node == sender.node


def _reread(conn: Connection, site: str) -> None:
    mirrors.lock(conn, [site])
    mirror = mirrors.load(conn, site)
    if mirror is not None:
        mirrors.save(conn, [call_mirror.reread(mirror, mirror.forgotten)])


def _with_refused(mirror: Mirror, refused: Counter[str]) -> Mirror:
    if not refused:
        return mirror
    codes = ", ".join(f"{code} ({count})" for code, count in refused.most_common(5))
    return replace(
        mirror,
        refused_count=mirror.refused_count + refused.total(),
        last_refusal=truncate(f"invalid rows were skipped: {codes}"),
    )


def _log_refused(site: str, refused: Counter[str]) -> None:
    if refused:
        log.warning("telemetry.refused", site=site, codes=dict(refused))


def _reports(rows: tuple[CallRow, ...]) -> tuple[list[CallReport], Counter[str]]:
    """The newest valid report of each call, and the number of invalid rows by error code."""
    if len(rows) > ITEMS_MAX:
        raise InvalidInput(
            "telemetry.too_many", f"rows must have at most {ITEMS_MAX} entries, got {len(rows)}", field="rows"
        )
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
    call_id = parse_call_id(row.call_id)
    try:
        category, status = Category(row.category), CallStatus(row.status)
    except ValueError:
        raise InvalidInput("call.unknown_value", "category or status has an unknown value") from None
    if not category.is_tracked:
        raise InvalidInput("call.not_tracked", "category must be external_call or database_write", field="category")
    if not 1 <= row.version <= COUNT_MAX:
        raise InvalidInput("call.version", f"version must be between 1 and {COUNT_MAX}", field="version")
    return CallReport(
        call_id=call_id,
        category=category,
        target_summary=printable_line(row.target, TARGET_BYTES_MAX),
        status=status,
        retry_count=check_count(row.retry_count, "retry_count"),
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
    return None if text is None else printable_line(text, LABEL_BYTES_MAX)


def _time(text: str | None) -> datetime | None:
    return None if text is None else from_text(text)

"""Search of the audit log, newest first, in bounded time.

Theory of operation. The log has one order, by time and id of the entry, and a search scans from a position in it, in
the narrowest index that the filter allows:

    about                    the entries about one id, and the actions that have it as their target
    target, actor, actions   the small indexes of actions
    statuses of failures     the small index of failures
    site                     the index by site
    no such filter           the index by time

Other conditions are checked on each entry, in the database. A scan without matches could be long, so a search scans at
most SCAN_MAX entries. It then returns the matches so far and the position where it stopped, and the caller may continue
from there. Entries of one time are sorted by id as they are read: they are few, and an index with the id would cost
every delivery more than it saves a search.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Boolean, Connection, Integer

from fieldpost.central.store.engine.column_types import Id, Moment
from fieldpost.central.store.engine.statement import Statement
from fieldpost.central.store.notifications.audit import to_entry
from fieldpost.central.store.schema.audit_tables import IS_ACTION, IS_FAILURE, audit
from fieldpost.core.audit import AuditEntry, AuditStatus
from fieldpost.core.search.audit_filter import ACTIONS, ERRORS, AuditFilter
from fieldpost.core.search.page_key import PageKey

SCAN_MAX = 5_000
"""How many entries one search scans."""
_STEP, _STEP_MAX = 200, 2_500
_FAILURES = (*ERRORS, AuditStatus.SKIPPED)

_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_EVER = datetime(9999, 1, 1, tzinfo=UTC)
_FIRST_ID, _LAST_ID = "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"

_NEWEST_FIRST = "order by occurred_at desc, event_id desc"
_JUDGED = "event_id, occurred_at, kind, status, channel, actor, target, source_site_id"
_FITS = """
    (cast(:any_kind as boolean) or kind {any:kinds})
    and (cast(:any_status as boolean) or status {any:statuses})
    and (cast(:channel as text) is null or channel = :channel)
    and (cast(:actor as text) is null or actor = :actor)
    and (cast(:target as text) is null or target = :target)
    and (cast(:site as text) is null or source_site_id = :site)
"""


def _arm(index: str, condition: str = "true", *, key: str = "", given: str = "") -> str:
    """The entries of one index before a position, newest first. `given` names the parameter for its column `key`.

    Column and time are compared as one row value, so that no planner scans another index and checks the column on each
    entry. The id only orders entries of one time.
    """
    whole, at, since = "occurred_at", ":at", ":since"
    if key:
        whole, at, since = f"({key}, occurred_at)", f"(:{given}, :at)", f"(:{given}, :since)"
    return f"""
        select {_JUDGED} from audit {{by:{index}}}
        where {condition} and {whole} <= {at} and {whole} >= {since} and (occurred_at < :at or event_id < :id)
        order by {f"{key} desc, " if key else ""}occurred_at desc, event_id desc limit :step
    """


def _walking(*arms: str) -> Statement:
    """One step of a scan: the matches, and always the position where the step ended."""
    met = arms[0] if len(arms) == 1 else " union all ".join(f"select * from ({arm}) as arm" for arm in arms)
    sql = f"""
        select event_id, occurred_at, is_fit, walked from (
            select event_id, occurred_at, case when {_FITS} then 1 else 0 end = 1 as is_fit,
                row_number() over ({_NEWEST_FIRST}) as number, count(*) over () as walked
            from (select * from ({met}) as arms {_NEWEST_FIRST} limit :step) as met
        ) as step
        where is_fit or number = walked {_NEWEST_FIRST}
    """
    return Statement(
        re.sub(r"\{by:\w+\}", "", sql),
        sqlite=re.sub(r"\{by:(\w+)\}", r"indexed by \1", sql),
        lists={"kinds": "text", "statuses": "text"},
        result={"event_id": Id, "occurred_at": Moment, "is_fit": Boolean, "walked": Integer},
    )


# The conditions of partial indexes are repeated literally: otherwise no planner uses the indexes.
_WAYS: Mapping[str, Statement] = {
    "about": _walking(
        _arm("ix_audit_correlation_id", "correlation_id = :about"),
        _arm(
            "ix_audit_action_target",
            f"{IS_ACTION} and (correlation_id is null or correlation_id <> :about)",
            key="target",
            given="about_text",
        ),
    ),
    "target": _walking(_arm("ix_audit_action_target", IS_ACTION, key="target", given="target")),
    "actor": _walking(_arm("ix_audit_action_actor", IS_ACTION, key="actor", given="actor")),
    "action": _walking(_arm("ix_audit_action", IS_ACTION)),
    "failure": _walking(_arm("ix_audit_failure", IS_FAILURE)),
    "site": _walking(_arm("ix_audit_site", key="source_site_id", given="site")),
    "moment": _walking(_arm("ix_audit_occurred_at")),
}
_COLUMNS = [column for column in audit.c if column.name != "ingested_at"]
_entries = Statement(
    f"select {', '.join(column.name for column in _COLUMNS)} from audit where event_id {{any:ids}} {_NEWEST_FIRST}",
    lists={"ids": "id"},
    result={column.name: column.type for column in _COLUMNS},
)


@dataclass(frozen=True, slots=True)
class FoundEntries:
    """Matches, newest first. `end` is the position to continue from, None at the end."""

    entries: tuple[AuditEntry, ...]
    end: PageKey | None


def find(conn: Connection, wanted: AuditFilter, *, limit: int, before: PageKey | None = None) -> FoundEntries:
    """Up to `limit` matches older than `before`; fewer, with an `end` to continue from, when matches are rare."""
    way = _way(wanted)
    upper = (wanted.until, _FIRST_ID) if wanted.until is not None else (_EVER, _LAST_ID)
    place = upper if before is None else min(before, upper)
    judgement = _judgement(wanted) | ({"about": wanted.about, "about_text": wanted.about} if wanted.about else {})
    found: list[PageKey] = []
    scanned, step = 0, limit + 1 if _is_plain(wanted, way) else _STEP
    while scanned < SCAN_MAX:
        rows = _WAYS[way].run(conn, since=wanted.since or _NEVER, at=place[0], id=place[1], step=step, **judgement)
        for row in rows:
            if row.is_fit:
                if len(found) == limit:
                    return FoundEntries(_whole(conn, found), found[-1])
                found.append((row.occurred_at, row.event_id))
        if not rows or rows[-1].walked < step:
            return FoundEntries(_whole(conn, found), None)
        place = rows[-1].occurred_at, rows[-1].event_id
        scanned += step
        step = min(4 * step, _STEP_MAX)
    return FoundEntries(_whole(conn, found), place)


def _way(wanted: AuditFilter) -> str:
    kinds = wanted.selected_kinds
    is_action = bool(kinds) and set(kinds) <= set(ACTIONS)
    if wanted.about is not None:
        return "about"
    if is_action and wanted.target is not None:
        return "target"
    if is_action and wanted.actor is not None:
        return "actor"
    if is_action:
        return "action"
    if wanted.statuses and set(wanted.statuses) <= set(_FAILURES):
        return "failure"
    return "moment" if wanted.site is None else "site"


def _is_plain(wanted: AuditFilter, way: str) -> bool:
    """Whether every scanned entry matches."""
    answered = {"site": wanted.site, "about": wanted.about}.get(way)
    given = wanted.fields().keys() - {"from", "to"}
    return not given or (answered is not None and given == {way})


def _judgement(wanted: AuditFilter) -> dict[str, Any]:
    kinds = wanted.selected_kinds
    return {
        "any_kind": not kinds,
        "kinds": [kind.value for kind in kinds],
        "any_status": not wanted.statuses,
        "statuses": [status.value for status in wanted.statuses],
        "channel": wanted.channel.value if wanted.channel else None,
        "actor": wanted.actor,
        "target": wanted.target,
        "site": wanted.site,
    }


def _whole(conn: Connection, found: list[PageKey]) -> tuple[AuditEntry, ...]:
    rows = _entries.run(conn, ids=[event_id for _, event_id in found]) if found else []
    return tuple(to_entry(dict(row._mapping)) for row in rows)

"""Queries of the mirror of cached calls, and of intents."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.sites import cached_calls, intents, mirrors
from fieldpost.central.watch.cursor import LIMIT_DEFAULT, page_start, to_cursor
from fieldpost.core.errors import NotFound
from fieldpost.core.ids import is_id
from fieldpost.core.search.call_filter import CallFilter
from fieldpost.core.search.page_key import PageKey
from fieldpost.core.sites.call_mirror import CachedCall, Mirror
from fieldpost.core.sites.intent import Intent, IntentState
from fieldpost.core.text import is_label


@dataclass(frozen=True, slots=True)
class CallPage:
    """Newest first; `next_cursor` is None on the last page. A short or empty page may have a next one."""

    calls: Sequence[CachedCall]
    next_cursor: str | None
    as_of: datetime


@dataclass(frozen=True, slots=True)
class CallDetail:
    """One call with its intents, and the state of its site's mirror."""

    call: CachedCall
    intents: Sequence[Intent]
    mirror: Mirror | None
    is_stuck: bool
    as_of: datetime


@dataclass(frozen=True, slots=True)
class IntentPage:
    intents: Sequence[Intent]
    next_cursor: str | None


class CachedCalls:
    """Reads the mirror and the intents."""

    def __init__(self, store: Store, stuck_after: timedelta) -> None:
        self._store = store
        self.stuck_after = stuck_after

    async def page(
        self, wanted: CallFilter | None = None, *, limit: int = LIMIT_DEFAULT, cursor: str | None = None
    ) -> CallPage:
        """A page of calls. Raises InvalidInput for an invalid limit or cursor."""
        before = page_start(limit, cursor)
        wanted = wanted or CallFilter()
        return await self._store.read(_page, wanted, limit, before, self.stuck_after, now=self._store.now())

    async def detail(self, site: str | None, call_id: str) -> CallDetail:
        """One call of this site, or without a site of the one that reported it. Raises NotFound."""
        return await self._store.read(_detail, site, call_id, self.stuck_after, now=self._store.now())

    async def asked(self, calls: Sequence[CachedCall]) -> dict[tuple[str, str], Intent]:
        """The newest intent of each of these calls, by site and id."""
        found = await self._store.read(intents.about_these, [call.report.call_id for call in calls])
        return {(intent.site, intent.message_id): intent for intent in reversed(found) if intent.message_id}

    async def these(self, chosen: Sequence[tuple[str, str]]) -> list[CachedCall]:
        """The calls with these sites and ids that the mirror has, the newest first."""
        return await self._store.read(
            cached_calls.these, [(site, call_id) for site, call_id in chosen if is_label(site) and is_id(call_id)]
        )

    async def intent(self, intent_id: str) -> Intent:
        found = await self._store.read(intents.get, intent_id)
        if found is None:
            raise NotFound("intent.unknown", "this intent does not exist")
        return found

    async def intents(
        self,
        *,
        site: str | None = None,
        states: Sequence[IntentState] = (),
        limit: int = LIMIT_DEFAULT,
        cursor: str | None = None,
    ) -> IntentPage:
        """Intents, the newest first."""
        before = page_start(limit, cursor)
        found = await self._store.read(intents.find, site=site, states=tuple(states), limit=limit + 1, key=before)
        shown = found[:limit]
        more = len(found) > limit
        return IntentPage(shown, to_cursor((shown[-1].created_at, shown[-1].intent_id)) if more else None)


def is_stuck(call: CachedCall, now: datetime, stuck_after: timedelta) -> bool:
    """Pending or retrying for longer than the threshold; shown, never acted on."""
    return call.is_live and now - call.begun_at > stuck_after


def _page(
    conn: Connection,
    wanted: CallFilter,
    limit: int,
    before: PageKey | None,
    stuck_after: timedelta,
    *,
    now: datetime | None,
) -> CallPage:
    as_of = database_time(conn, now)
    found, end = cached_calls.find(conn, wanted, limit=limit, key=before, stuck_before=as_of - stuck_after)
    return CallPage(found, to_cursor(end) if end else None, as_of)


def _detail(
    conn: Connection, site: str | None, call_id: str, stuck_after: timedelta, *, now: datetime | None
) -> CallDetail:
    if site is None:
        site = next(iter(cached_calls.sites_of(conn, call_id)), None)
    call = None if site is None else cached_calls.get(conn, site, call_id)
    if site is None or call is None:
        raise NotFound("cached_call.unknown", f"{'this site has' if site else 'no site has'} reported such a call")
    as_of = database_time(conn, now)
    return CallDetail(
        call,
        intents.about(conn, site, call_id),
        mirrors.load(conn, site),
        is_stuck(call, as_of, stuck_after),
        as_of,
    )

"""The cached calls of all sites as these report them, and what operators have asked for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeVar

from sqlalchemy import Connection

from fieldpost.central.store.engine.moment import moment
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.sites import cached_calls, intents, mirrors
from fieldpost.central.store.sites.cached_calls import CallFilter
from fieldpost.central.watch.cursor import from_cursor, to_cursor
from fieldpost.core.errors import InvalidInput, NotFound
from fieldpost.core.ids import is_id
from fieldpost.core.search.filters import parse_range
from fieldpost.core.search.tokens import TOKENS_MAX, tokenize
from fieldpost.core.sites.call_mirror import CachedCall, Mirror
from fieldpost.core.sites.intent import Intent, IntentState
from fieldpost.core.sites.message import CallStatus, Category
from fieldpost.core.text import check_label, is_label

W = TypeVar("W", bound=StrEnum)

LIMIT_DEFAULT = 50
LIMIT_MAX = 200
FIELDS = ("site", "category", "status", "from", "to", "target", "stuck")
"""What the calls can be narrowed by; only `status` may be given more than once."""


@dataclass(frozen=True, slots=True)
class CallPage:
    """Newest first; `next_cursor` is None on the last page. A page may be short, even empty, and still have a next."""

    calls: Sequence[CachedCall]
    next_cursor: str | None
    as_of: datetime


@dataclass(frozen=True, slots=True)
class CallDetail:
    """One call with what was asked for it, and how far the mirror of its site has come."""

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
    """Looking at the mirror, and at intents."""

    def __init__(self, store: Store, stuck_after: timedelta) -> None:
        self._store = store
        self.stuck_after = stuck_after

    async def page(
        self,
        given: Mapping[str, str | Sequence[str]] | None = None,
        *,
        limit: int = LIMIT_DEFAULT,
        cursor: str | None = None,
    ) -> CallPage:
        """A page of calls, or InvalidInput naming what is wrong with the question."""
        wanted = parse(given or {})
        _check_limit(limit)
        before = None if cursor is None else from_cursor(cursor)
        return await self._store.read(_page, wanted, limit, before, self.stuck_after, now=self._store.now())

    async def detail(self, site: str | None, call_id: str) -> CallDetail:
        """One call of this site, or of whichever told of it; NotFound when the mirror has none such."""
        return await self._store.read(_detail, site, call_id, self.stuck_after, now=self._store.now())

    async def asked(self, calls: Sequence[CachedCall]) -> dict[tuple[str, str], Intent]:
        """What was last asked for each of these calls, by site and id; those of which nothing was are left out."""
        found = await self._store.read(intents.about_these, [call.report.call_id for call in calls])
        return {(intent.site, intent.message_id): intent for intent in reversed(found) if intent.message_id}

    async def these(self, chosen: Sequence[tuple[str, str]]) -> list[CachedCall]:
        """Those of these calls, each by its site and id, that the mirror has; the newest first."""
        return await self._store.read(
            cached_calls.these, [(site, call_id) for site, call_id in chosen if is_label(site) and is_id(call_id)]
        )

    async def intent(self, intent_id: str) -> Intent:
        found = await self._store.read(intents.get, intent_id)
        if found is None:
            raise NotFound("intent.unknown", "there is no such intent")
        return found

    async def intents(
        self,
        *,
        site: str | None = None,
        states: Sequence[str] = (),
        limit: int = LIMIT_DEFAULT,
        cursor: str | None = None,
    ) -> IntentPage:
        """Intents, the newest first."""
        _check_limit(limit)
        if site is not None:
            check_label(site, "site")
        asked = tuple(_word(IntentState, text, "state") for text in states)
        before = None if cursor is None else from_cursor(cursor)
        found = await self._store.read(intents.find, site=site, states=asked, limit=limit + 1, before=before)
        shown = found[:limit]
        more = len(found) > limit
        return IntentPage(shown, to_cursor((shown[-1].created_at, shown[-1].intent_id)) if more else None)


def parse(given: Mapping[str, str | Sequence[str]]) -> CallFilter:
    """The filter that these fields say, or InvalidInput naming the field that says none."""
    for name in given:
        if name not in FIELDS:
            raise InvalidInput("filter.unknown", f"there is no filter {name[:64]!r}", field=name[:64])
    one = {name: value for name, value in given.items() if isinstance(value, str)}
    asked = given.get("status", ())
    since, until = parse_range(one)
    return CallFilter(
        site=check_label(one["site"], "site") if "site" in one else None,
        category=_category(one["category"]) if "category" in one else None,
        statuses=tuple(
            dict.fromkeys(_word(CallStatus, text, "status") for text in ([asked] if isinstance(asked, str) else asked))
        ),
        since=since,
        until=until,
        target=_target(one["target"]) if "target" in one else None,
        is_stuck=_truth(one["stuck"], "stuck") if "stuck" in one else False,
    )


def is_stuck(call: CachedCall, now: datetime, stuck_after: timedelta) -> bool:
    """Pending or retrying for longer than the threshold; shown, never acted on."""
    return call.is_live and now - call.begun_at > stuck_after


def _page(
    conn: Connection,
    wanted: CallFilter,
    limit: int,
    before: tuple[datetime, str] | None,
    stuck_after: timedelta,
    *,
    now: datetime | None,
) -> CallPage:
    as_of = moment(conn, now)
    found, end = cached_calls.find(conn, wanted, limit=limit, before=before, stuck_before=as_of - stuck_after)
    return CallPage(found, to_cursor(end) if end else None, as_of)


def _detail(
    conn: Connection, site: str | None, call_id: str, stuck_after: timedelta, *, now: datetime | None
) -> CallDetail:
    if site is None:
        site = next(iter(cached_calls.sites_of(conn, call_id)), None)
    call = None if site is None else cached_calls.get(conn, site, call_id)
    if site is None or call is None:
        raise NotFound("cached_call.unknown", f"no such call was reported by {'this' if site else 'any'} site")
    as_of = moment(conn, now)
    return CallDetail(
        call,
        intents.about(conn, site, call_id),
        mirrors.load(conn, site),
        is_stuck(call, as_of, stuck_after),
        as_of,
    )


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidInput("limit.range", f"limit must be from 1 to {LIMIT_MAX}", field="limit")


def _word(kind: type[W], text: str, field: str) -> W:
    try:
        return kind(text)
    except ValueError:
        raise InvalidInput(
            f"{field}.unknown", f"{field} must be one of {', '.join(kind)}, not {text[:64]!r}", field=field
        ) from None


def _category(text: str) -> Category:
    found = _word(Category, text, "category")
    if not found.is_tracked:
        raise InvalidInput("filter.category", "notifications are no cached calls", field="category")
    return found


def _truth(text: str, field: str) -> bool:
    if text not in ("true", "false"):
        raise InvalidInput("filter.truth", f"{field} must be true or false", field=field)
    return text == "true"


def _target(text: str) -> str:
    count = len(tokenize(check_label(text, "target")))
    if not 1 <= count <= TOKENS_MAX:
        raise InvalidInput("filter.words", f"target must hold 1 to {TOKENS_MAX} words to look for", field="target")
    return text

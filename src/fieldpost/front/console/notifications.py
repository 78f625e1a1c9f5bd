"""The notifications page: figures, filters and the list, newest first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from starlette.responses import Response

from fieldpost.central.watch.health import COUNT_MAX
from fieldpost.central.watch.issue import IssueCode
from fieldpost.central.watch.notifications import ErrorGroup, NotificationSummary, Page
from fieldpost.core.errors import InvalidInput, NotFound
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.kpi import of_kind
from fieldpost.core.notification import LIVE, Status
from fieldpost.core.search.filters import NOTIFICATION_FILTERS
from fieldpost.core.search.notification_filter import Filter
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.filters import FilterQuery, address, read_filter, typed
from fieldpost.front.console.kit.request import MenuLine, PageRequest, PageRoute, field_errors

PATH = "/notifications"
NOTICES = {
    "retried": "Retried: the notification is pending again and due now.",
    "discarded": "Discarded: the notification will not be sent. Its record is kept.",
    "resent": "The notification is sent again under the same id.",
}
LAST = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}
"""Time ranges that end now, by their name in the URL."""
GROUPS_MAX = 3
NOT_ENDED = tuple(status for status in Status if status in LIVE)
NOT_DELIVERED = tuple(status for status in Status if status is not Status.DELIVERED)
SEVERAL = {",".join(NOT_ENDED): "pending or retrying", ",".join(NOT_DELIVERED): "not delivered"}
"""Combinations of statuses that the filter offers."""


async def page(request: PageRequest) -> Response:
    query = request.http.query_params
    snapshot = await request.watch.kpis.now()
    parsed, last = _filter_query(request, snapshot.as_of)
    errors = dict(parsed.errors)
    cursor = query.get("cursor") or None
    found: Page | None = None
    if not errors:
        try:
            found = await request.watch.notifications.page(parsed.wanted, cursor=cursor)
        except InvalidInput as error:
            errors |= field_errors(error)
    wanted = parsed.wanted
    values: dict[str, Any] = {
        "found": found,
        "lines": _by_whole(found.lines) if found else (),
        "cursor": cursor,
        "as_of": found.as_of if found else snapshot.as_of,
        "parsed": parsed,
        "wanted": wanted,
        "last": last,
        "lasts": list(LAST),
        "figures": of_kind(snapshot.total, wanted.kind),
        "by": request.watch.kpis.by,
        "counts": await request.watch.health.counts(),
        "count_max": COUNT_MAX,
        "statuses": list(Status),
        "several": SEVERAL,
        "link": PageLinks(wanted, last, cursor),
        "is_filtered": wanted != Filter(),
        "is_narrowed": replace(wanted, statuses=()) != Filter(),
        "group_error": _group_error(wanted, found),
        "of_subscription": await _subscription(request, wanted),
        "groups": await _groups(request, wanted, cursor),
    }
    # A live update keeps the form of the page.
    sites, lists = ([], []) if request.is_live_update else await request.watch.notifications.names()
    return request.page(
        "notifications.html",
        422 if errors else 200,
        **values,
        sites=sites,
        lists=lists,
        errors=errors,
        given=parsed.given,
        notice=request.notice(NOTICES),
    )


def _by_whole(lines: Sequence[NotificationSummary]) -> list[NotificationSummary]:
    """The lines of a page in their order, but parts of one whole together, at the place of the first."""
    parts: dict[str, list[NotificationSummary]] = {}
    for line in lines:
        parts.setdefault(line.notification.whole_id or line.notification.notification_id, []).append(line)
    return [line for together in parts.values() for line in together]


def _filter_query(request: PageRequest, now: datetime) -> tuple[FilterQuery[Filter], str | None]:
    """The filter of the URL, and the name of its time range if it is one of LAST."""
    query = request.http.query_params
    word = query.get("last") or None
    has_times = any(query.get(name, "").strip() for name in ("from", "to"))
    if word is None or has_times:
        return read_filter(query, NOTIFICATION_FILTERS, Filter.parse), None
    if word in LAST:
        since = {"from": typed(now - LAST[word])}
        return read_filter(query, NOTIFICATION_FILTERS, Filter.parse, defaults=since), word
    parsed = read_filter(query, NOTIFICATION_FILTERS, Filter.parse)
    wrong = f"Last must be one of {', '.join(LAST)}, not {word[:64]!r}."
    return replace(parsed, errors=parsed.errors | {"last": wrong}), None


async def _groups(request: PageRequest, wanted: Filter, cursor: str | None) -> tuple[ErrorGroup, ...]:
    """The largest error groups, shown above the list of all parked notifications."""
    if wanted != Filter(statuses=(Status.PARKED,)) or cursor is not None:
        return ()
    return (await request.watch.notifications.parked_groups()).groups[:GROUPS_MAX]


async def _subscription(request: PageRequest, wanted: Filter) -> Subscription | None:
    """The subscription of the filter, if it exists."""
    if wanted.subscription_id is None:
        return None
    try:
        return (await request.watch.subscriptions.one(wanted.subscription_id))[0].subscription
    except NotFound:
        return None


def _group_error(wanted: Filter, found: Page | None) -> str | None:
    """An example error of the selected error group."""
    if wanted.error_key is None or found is None or not found.lines:
        return None
    return found.lines[0].notification.last_error


@dataclass(frozen=True, slots=True)
class PageLinks:
    """URLs of this page and of its actions that keep the other filters."""

    wanted: Filter
    last: str | None = None
    at: str | None = None

    def status(self, *statuses: Status) -> str:
        return self._to(replace(self.wanted, statuses=statuses))

    def not_ended(self) -> str:
        return self._to(replace(self.wanted, statuses=NOT_ENDED, is_stuck=False, is_overdue=False))

    def tile(self, *statuses: Status, is_stuck: bool = False, is_overdue: bool = False) -> str:
        """The notifications that a tile counts."""
        wanted = Filter(statuses=statuses, kind=self.wanted.kind, is_stuck=is_stuck, is_overdue=is_overdue)
        return address(PATH, fields_of(wanted))

    def within(self, last: str | None) -> str:
        """The URL with another time range, or none."""
        return address(PATH, fields_of(replace(self.wanted, since=None, until=None)), last=last)

    def cursor(self, cursor: str | None) -> str:
        return self._to(self.wanted, cursor)

    def first(self) -> str:
        return self.cursor(None)

    def here(self) -> str:
        return self.cursor(self.at)

    def one(self, notification_id: str) -> str:
        """The URL of a notification, with a link back to this page."""
        here = self.here()
        return address(f"{PATH}/{notification_id}", {}, back=here if here != PATH else None)

    def bulk(self, verb: str) -> str:
        """The URL that confirms a bulk action on all matches."""
        fields = {name: value for name, value in fields_of(self.wanted).items() if name != "status"}
        return address("/bulk-actions/new", {"verb": verb, **fields}, back=self.here())

    def _to(self, wanted: Filter, cursor: str | None = None) -> str:
        fields = fields_of(wanted)
        if self.last is not None:
            fields.pop("from", None)
        return address(PATH, fields, last=self.last, cursor=cursor)


def fields_of(wanted: Filter) -> dict[str, str | Sequence[str]]:
    """The filter as URL fields."""
    fields: Mapping[str, str | list[str]] = wanted.fields()
    times = {name: typed(at) for name, at in (("from", wanted.since), ("to", wanted.until)) if at is not None}
    return {**fields, **times}


MENU = MenuLine(
    "Notifications",
    PATH,
    "Now",
    "n",
    badge=(IssueCode.PARKED,),
    badge_label="parked",
    also=("/bulk-actions", "/parked-groups"),
)
ROUTES = (PageRoute("GET", PATH, page, Access.VIEWER),)

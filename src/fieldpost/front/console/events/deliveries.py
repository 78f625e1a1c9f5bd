"""The delivery log of a subscription: attempts, requests and responses, newest first."""

from starlette.responses import Response

from fieldpost.central.watch.events.deliveries import DeliveryPage
from fieldpost.core.delivery.explain import explain_attempt
from fieldpost.core.search.filters import DELIVERY_FILTERS
from fieldpost.core.search.notification_filter import Filter
from fieldpost.front.auth import Access
from fieldpost.front.console.events.subscriptions import PATH, path_of
from fieldpost.front.console.kit.filters import address, read_filter
from fieldpost.front.console.kit.request import PageRequest, PageRoute

PAGE_SIZE = 25


async def page(request: PageRequest) -> Response:
    query = request.http.query_params
    parsed = read_filter(query, DELIVERY_FILTERS, Filter.parse)
    cursor = query.get("cursor") or None
    found, _ = await request.watch.subscriptions.one(request.path("subscription_id"), request.actor.owner_limit)
    subscription = found.subscription
    own_path = path_of(subscription)
    log: DeliveryPage | None = None
    if parsed.is_readable:
        log = await request.watch.deliveries.page(
            request.actor, subscription.subscription_id, parsed.wanted, limit=PAGE_SIZE, cursor=cursor
        )

    def at(cursor: str | None) -> str:
        return address(f"{own_path}/log", parsed.read, cursor=cursor)

    return request.page(
        "subscription_log.html",
        parsed.form,
        subscription=subscription,
        own_path=own_path,
        page=log,
        parsed=parsed,
        cursor=cursor,
        explain_attempt=explain_attempt,
        as_of=log.as_of if log else None,
        next_path=at(log.next_cursor) if log and log.next_cursor else None,
        first_path=at(None),
        here=at(cursor),
    )


ROUTES = (PageRoute("GET", PATH + "/{subscription_id}/log", page, Access.OWNER_READ),)

"""Parked notifications grouped by error, so that one cause is fixed once."""

from starlette.responses import Response

from fieldpost.central.watch.cursor import LIMIT_MAX
from fieldpost.core.bulk import BulkAction
from fieldpost.front.auth import Access
from fieldpost.front.console.bulk_actions import NEW
from fieldpost.front.console.kit.filters import address
from fieldpost.front.console.kit.request import PageRequest, PageRoute
from fieldpost.front.console.notifications import PATH as NOTIFICATIONS

PATH = "/parked-groups"


async def page(request: PageRequest) -> Response:
    found = await request.watch.notifications.parked_groups()
    recent = await request.watch.bulk_actions.page(limit=LIMIT_MAX)
    return request.page(
        "parked_groups.html",
        found=found,
        total=sum(group.count for group in found.groups),
        as_of=recent.as_of,
        latest=_by_group(recent.actions),
        shown=lambda key: address(NOTIFICATIONS, {"status": "parked", "error": key}),
        confirm_path=lambda key, verb, pace=None: address(NEW, {"verb": verb, "error": key}, pace=pace, back=PATH),
    )


def _by_group(actions: tuple[BulkAction, ...]) -> dict[str, BulkAction]:
    """The newest bulk action on each whole error group."""
    found: dict[str, BulkAction] = {}
    for action in actions:
        if action.wanted is not None and set(action.wanted) == {"status", "error"}:
            found.setdefault(str(action.wanted["error"]), action)
    return found


ROUTES = (PageRoute("GET", PATH, page, Access.VIEWER),)

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
    found = await request.backend.watch.notifications.parked_groups()
    recent = await request.backend.watch.bulk_actions.page(limit=LIMIT_MAX)
    return request.page(
        "parked_groups.html",
        found=found,
        total=sum(group.count for group in found.groups),
        as_of=recent.as_of,
        latest=_by_group(recent.actions),
        shown=_shown,
        confirm_path=_confirm_path,
    )


def _by_group(actions: tuple[BulkAction, ...]) -> dict[str, BulkAction]:
    """The newest bulk action on each whole error group."""
    found: dict[str, BulkAction] = {}
    for action in actions:
        if action.wanted is not None and set(action.wanted) == {"status", "error"}:
            found.setdefault(str(action.wanted["error"]), action)
    return found


def _shown(key: str) -> str:
    return address(NOTIFICATIONS, {"status": "parked", "error": key})


def _confirm_path(key: str, verb: str, pace: str | None = None) -> str:
    return address(NEW, {"verb": verb, "error": key}, pace=pace, back=PATH)


ROUTES = (PageRoute("GET", PATH, page, Access.VIEWER),)

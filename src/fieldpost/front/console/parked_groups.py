"""What is parked, by what went wrong: one trouble is mended once, however many notifications it has parked."""

from starlette.responses import Response

from fieldpost.central.watch.notifications import LIMIT_MAX
from fieldpost.core.bulk import BulkAction
from fieldpost.front.auth import Access
from fieldpost.front.console.bulk_actions import NEW
from fieldpost.front.console.kit.filters import address
from fieldpost.front.console.kit.request import PageRequest, PageRoute
from fieldpost.front.console.notifications import PATH as OUTBOX

PATH = "/parked-groups"


async def page(request: PageRequest) -> Response:
    found = await request.backend.watch.notifications.parked_groups()
    acts = await request.backend.watch.bulk_actions.page(limit=LIMIT_MAX)
    return request.page(
        "parked_groups.html",
        found=found,
        total=sum(group.count for group in found.groups),
        as_of=acts.as_of,
        lately=_by_group(acts.acts),
        shown=_shown,
        confirm_path=_confirm_path,
    )


def _by_group(acts: tuple[BulkAction, ...]) -> dict[str, BulkAction]:
    """The newest act about each group of errors and nothing narrower."""
    found: dict[str, BulkAction] = {}
    for act in acts:
        if act.wanted is not None and set(act.wanted) == {"status", "error"}:
            found.setdefault(str(act.wanted["error"]), act)
    return found


def _shown(key: str) -> str:
    return address(OUTBOX, {"status": "parked", "error": key})


def _confirm_path(key: str, verb: str, pace: str | None = None) -> str:
    return address(NEW, {"verb": verb, "error": key}, pace=pace, back=PATH)


ROUTES = (PageRoute("GET", PATH, page, Access.VIEWER),)

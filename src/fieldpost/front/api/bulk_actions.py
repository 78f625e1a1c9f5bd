"""`/bulk-actions`: retry or discard many parked notifications: preview, start, show, cancel."""

from collections.abc import Sequence

from fieldpost.central.operate.bulk_actions import Chosen
from fieldpost.central.watch.bulk_actions import BulkPreview, BulkRow, RowPage
from fieldpost.core.bulk import BulkAction, BulkVerb, RowOutcome
from fieldpost.core.errors import InvalidInput
from fieldpost.core.search.filters import parse_moment
from fieldpost.core.search.notification_filter import Filter
from fieldpost.front.http.call import ApiAnswer, Call
from fieldpost.link.http.body import Body, RowVersion
from fieldpost.link.http.endpoint_spec import LIMITED, PAGED, Parameter, one_of, spec
from fieldpost.link.http.view import View, ViewField, listing

BulkFilter = dict[str, str | list[str]]


class Wanted(Body, frozen=True):
    filter: BulkFilter


class Selected(Body, frozen=True):
    notification_id: str
    version: RowVersion | None = None


class NewBulkAction(Body, frozen=True, kw_only=True):
    verb: str
    reason: str
    filter: BulkFilter | None = None
    notifications: list[Selected] | None = None
    as_of: str | None = None
    in_stages: bool = False


PREVIEW = View("PreviewView", BulkPreview, "count is_whole as_of")
BULK_ACTION = View(
    "BulkActionView",
    BulkAction,
    "action_id verb status actor reason filter=wanted as_of in_stages stage",
    "total done refused conflicts gone note created_at ended_at",
    description="A bulk action and its progress; `refused` counts notifications that changed or disappeared meanwhile.",
)
BULK_ACTIONS = listing("BulkActionsView", "bulk_actions", BULK_ACTION)
ROW = View("BulkRowView", BulkRow, "notification_id version outcome current_status settled_at")
ROWS = View("BulkRowPage", RowPage, ViewField("rows", view=ROW), "next_cursor")


@spec(PREVIEW, body=Wanted)
async def preview(call: Call) -> BulkPreview:
    """Count the parked notifications that match a `filter`. Pass its `as_of` on when you start the action, to leave out
    notifications that park later."""
    wanted = await call.read(Wanted)
    return await call.watch.bulk_actions.preview(Filter.parse(wanted.filter))


@spec(BULK_ACTION, 202, body=NewBulkAction, problems=(409,))
async def start(call: Call) -> ApiAnswer:
    """Start to `retry` or `discard` (`verb`) the parked notifications that match a `filter`, or selected
    `notifications` by id and version, for a `reason`. Central continues in the background, on any node."""
    new = await call.read(NewBulkAction)
    as_of = None if new.as_of is None else parse_moment(new.as_of, "as_of")
    action = await call.operate.bulk_actions.start(
        call.actor, _verb(new.verb), _subject(new), new.reason, as_of=as_of, in_stages=new.in_stages
    )
    return ApiAnswer(action, headers={"Location": f"/api/v1/bulk-actions/{action.action_id}"})


@spec(BULK_ACTIONS, query=(LIMITED,))
async def show_all(call: Call) -> Sequence[BulkAction]:
    """List the newest bulk actions, at most `limit`."""
    return await call.watch.bulk_actions.newest(call.limit())


@spec(BULK_ACTION)
async def show(call: Call) -> BulkAction:
    """Show one bulk action and its progress; for a subscriber, a recovery of one of its subscriptions."""
    return await call.watch.bulk_actions.get(call.path("action_id"), call.actor.owner_limit)


@spec(ROWS, query=(Parameter("outcome", one_of(RowOutcome), "Only rows with this outcome"), *PAGED))
async def rows(call: Call) -> RowPage:
    """List the outcome for each notification, in processing order."""
    return await call.watch.bulk_actions.rows(
        call.path("action_id"), owner=call.actor.owner_limit, outcome=call.parameter("outcome"), **call.paging()
    )


@spec(BULK_ACTION, problems=(409,))
async def cancel(call: Call) -> BulkAction:
    """Stop a bulk action. Notifications that it has already processed stay as they are."""
    return await call.operate.bulk_actions.cancel(call.actor, call.path("action_id"))


def _subject(new: NewBulkAction) -> Filter | list[Chosen]:
    if (new.filter is None) == (new.notifications is None):
        raise InvalidInput("bulk.about", "give either filter or notifications", field="filter")
    if new.filter is not None:
        return Filter.parse(new.filter)
    return [Chosen(one.notification_id, one.version) for one in new.notifications or ()]


def _verb(text: str) -> BulkVerb:
    try:
        return BulkVerb(text)
    except ValueError:
        raise InvalidInput("bulk.verb", f"verb must be retry or discard, not {text[:64]!r}", field="verb") from None

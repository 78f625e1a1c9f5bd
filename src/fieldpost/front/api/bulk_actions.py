"""`/bulk-actions`: one verb on many parked notifications; preview, start, look, cancel."""

import msgspec

from fieldpost.central.operate.bulk_actions import Chosen
from fieldpost.central.watch.bulk_actions import ActRow
from fieldpost.core.bulk import BulkAction, BulkVerb
from fieldpost.core.errors import InvalidInput
from fieldpost.core.search.filters import parse_moment
from fieldpost.core.search.notification_filter import Filter
from fieldpost.core.times import to_text
from fieldpost.front.http.call import ApiAnswer, Body, Call
from fieldpost.front.http.endpoint_spec import LIMITED, PAGED, Parameter, one_of, spec

ACCEPTED = 202
OUTCOMES = ("done", "conflict", "gone")

BulkFilter = dict[str, str | list[str]]


class Wanted(Body, frozen=True):
    filter: BulkFilter


class Selected(Body, frozen=True):
    notification_id: str
    version: int | None = None


class NewBulkAction(Body, frozen=True, kw_only=True):
    verb: str
    reason: str
    filter: BulkFilter | None = None
    notifications: list[Selected] | None = None
    as_of: str | None = None
    in_stages: bool = False


class PreviewView(msgspec.Struct, frozen=True):
    count: int
    is_whole: bool
    as_of: str


class BulkActionView(msgspec.Struct, frozen=True, kw_only=True):
    """A bulk action and how far it has come; `refused` are those that were changed or gone meanwhile."""

    action_id: str
    verb: str
    status: str
    actor: str
    reason: str
    filter: BulkFilter | None
    as_of: str
    in_stages: bool
    stage: int
    total: int
    done: int
    refused: int
    conflicts: int
    gone: int
    note: str | None
    created_at: str
    ended_at: str | None


class BulkActionsView(msgspec.Struct, frozen=True):
    bulk_actions: list[BulkActionView]


class ActRowView(msgspec.Struct, frozen=True, kw_only=True):
    notification_id: str
    version: int | None
    outcome: str | None
    current_status: str | None
    settled_at: str | None


class ActRowPage(msgspec.Struct, frozen=True):
    rows: list[ActRowView]
    next_cursor: str | None


@spec(PreviewView, body=Wanted)
async def preview(call: Call) -> ApiAnswer:
    """How many parked notifications fit a `filter`; its `as_of`, given to the act, leaves out what parks later."""
    wanted = await call.read(Wanted)
    found = await call.watch.bulk_actions.preview(Filter.parse(wanted.filter))
    return ApiAnswer(PreviewView(found.count, found.is_whole, to_text(found.as_of)))


@spec(BulkActionView, 202, body=NewBulkAction, problems=(409,))
async def start(call: Call) -> ApiAnswer:
    """Begin to `retry` or `discard` (`verb`) what is parked and fits a `filter`, or a selection of `notifications` by
    their ids and the versions seen, for a `reason`. It goes on by itself, on whichever node."""
    new = await call.read(NewBulkAction)
    as_of = None if new.as_of is None else parse_moment(new.as_of, "as_of")
    act = await call.operate.bulk_actions.start(
        call.actor, _verb(new.verb), _about(new), new.reason, as_of=as_of, in_stages=new.in_stages
    )
    return ApiAnswer(_view(act), ACCEPTED, {"Location": f"/api/v1/bulk-actions/{act.action_id}"})


@spec(BulkActionsView, query=(LIMITED,))
async def show_all(call: Call) -> ApiAnswer:
    """The newest bulk actions, at most `limit`."""
    found = await call.watch.bulk_actions.newest(call.limit(call.query()))
    return ApiAnswer(BulkActionsView([_view(act) for act in found]))


@spec(BulkActionView)
async def show(call: Call) -> ApiAnswer:
    """One bulk action: how far it has come."""
    call.query()
    return ApiAnswer(_view(await call.watch.bulk_actions.get(call.path("action_id"))))


@spec(ActRowPage, query=(Parameter("outcome", one_of(OUTCOMES), "only what came to this"), *PAGED))
async def rows(call: Call) -> ApiAnswer:
    """What the act came to for each notification, in the order of the work; filtered by `outcome` (done, conflict or
    gone), paged by `limit` and `cursor`."""
    query = call.query()
    one = {name: values[0] for name, values in query.items()}
    found = await call.watch.bulk_actions.rows(
        call.path("action_id"), outcome=one.get("outcome"), limit=call.limit(query), cursor=one.get("cursor")
    )
    return ApiAnswer(ActRowPage([_row(row) for row in found.rows], found.next_cursor))


@spec(BulkActionView, problems=(409,))
async def cancel(call: Call) -> ApiAnswer:
    """End the act where it stands; what was done stays done."""
    return ApiAnswer(_view(await call.operate.bulk_actions.cancel(call.actor, call.path("action_id"))))


def _about(new: NewBulkAction) -> Filter | list[Chosen]:
    if (new.filter is None) == (new.notifications is None):
        raise InvalidInput("bulk.about", "either filter or notifications must say what it is about", field="filter")
    if new.filter is not None:
        return Filter.parse(new.filter)
    return [Chosen(one.notification_id, one.version) for one in new.notifications or ()]


def _verb(text: str) -> BulkVerb:
    try:
        return BulkVerb(text)
    except ValueError:
        raise InvalidInput("bulk.verb", f"verb must be retry or discard, not {text[:64]!r}", field="verb") from None


def _view(act: BulkAction) -> BulkActionView:
    return BulkActionView(
        action_id=act.action_id,
        verb=act.verb.value,
        status=act.status.value,
        actor=act.actor,
        reason=act.reason,
        filter=act.wanted,
        as_of=to_text(act.as_of),
        in_stages=act.in_stages,
        stage=act.stage,
        total=act.total,
        done=act.done,
        refused=act.refused,
        conflicts=act.conflicts,
        gone=act.gone,
        note=act.note,
        created_at=to_text(act.created_at),
        ended_at=to_text(act.ended_at) if act.ended_at else None,
    )


def _row(row: ActRow) -> ActRowView:
    return ActRowView(
        notification_id=row.notification_id,
        version=row.version,
        outcome=row.outcome,
        current_status=row.current_status,
        settled_at=to_text(row.settled_at) if row.settled_at else None,
    )

"""Bulk actions: list, progress, results per notification, cancel."""

from collections.abc import Mapping, Sequence

from starlette.responses import Response

from fieldpost.core.bulk import STAGE_ENDS, BulkAction, BulkStatus, RowOutcome
from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.filters import address
from fieldpost.front.console.kit.request import PageRequest, PageRoute, field_errors, redirect
from fieldpost.front.console.new_bulk_action import PATH
from fieldpost.front.console.notifications import PATH as NOTIFICATIONS

NOTICES = {
    "started": "Started. The action continues in the background; you can leave this page.",
    "cancelled": "Cancelled. Processed notifications are not reverted; the rest remain parked.",
}
NEW = f"{PATH}/new"


async def page(request: PageRequest) -> Response:
    cursor = request.http.query_params.get("cursor") or None
    found = await request.watch.bulk_actions.page(cursor=cursor)
    older = address(PATH, {}, cursor=found.next_cursor)
    return request.page("bulk_actions.html", found=found, as_of=found.as_of, cursor=cursor, about=about, older=older)


async def cancel(request: PageRequest) -> Response:
    await request.form()
    action_id = request.path("action_id")
    try:
        await request.operate.bulk_actions.cancel(request.actor, action_id)
    except Conflict as error:
        return await one(request, 409, f"Not cancelled: {error.message}.")
    return redirect(f"{PATH}/{action_id}", "cancelled")


async def one(request: PageRequest, status: int = 200, warning: str | None = None) -> Response:
    query = request.http.query_params
    outcome, cursor = query.get("outcome") or None, query.get("cursor") or None
    action_id = request.path("action_id")
    errors: dict[str, str] = {}
    watch, owner = request.watch.bulk_actions, request.actor.owner_limit
    try:
        story = await watch.story(action_id, owner=owner, outcome=outcome, cursor=cursor)
    except InvalidInput as error:
        # Show the action itself; only the requested part of its rows is invalid.
        errors, status = field_errors(error), 422
        story = await watch.story(action_id, owner=owner)
        outcome = cursor = None
    action = story.action
    path = f"{PATH}/{action_id}"
    return request.page(
        "bulk_action.html",
        status,
        story=story,
        action=action,
        as_of=story.as_of,
        remaining=action.remaining(story.as_of),
        about=about(action),
        shown_by=shown_by(action),
        next_steps=_next_steps(action),
        stages=_stages(action),
        outcomes=_outcomes(action, path),
        outcome=outcome,
        cursor=cursor,
        rows_path=lambda **more: address(path, {}, outcome=outcome, **more),
        errors=errors,
        here=address(path, {}, outcome=outcome, cursor=cursor),
        notice=request.notice(NOTICES),
        warning=warning,
    )


def about(action: BulkAction) -> str:
    """The selection of the action as text."""
    if action.wanted is None:
        return "a selection"
    fields = [name for name in ("list", "site", "type", "subject", "error") if name in action.wanted]
    said = [f"{'error group' if name == 'error' else name} {action.wanted[name]}" for name in fields]
    times = [f"{name} {str(action.wanted[name])[:16]}Z" for name in ("from", "to") if name in action.wanted]
    return ", ".join(said + times) or "all parked"


def shown_by(action: BulkAction) -> str | None:
    """The URL of the notifications that still match its filter; None for a selection."""
    return None if action.wanted is None else address(NOTIFICATIONS, action.wanted)


def _next_steps(action: BulkAction) -> list[tuple[str, str, bool]]:
    """Follow-up actions for the rest of a halted or cancelled action: label, URL, whether destructive."""
    if action.status not in (BulkStatus.HALTED, BulkStatus.CANCELLED) or not action.left:
        return []
    fields = _rest(action)
    if fields is None:
        return []
    back = f"{PATH}/{action.action_id}"
    return [
        ("Retry in stages again…", address(NEW, {"verb": "retry", "pace": "stages", **fields}, back=back), False),
        ("Retry all anyway…", address(NEW, {"verb": "retry", **fields}, back=back), False),
        ("Discard the rest…", address(NEW, {"verb": "discard", **fields}, back=back), True),
    ]


def _rest(action: BulkAction) -> Mapping[str, str | Sequence[str]] | None:
    """The filter that finds the notifications not processed."""
    if action.wanted is not None:
        return {name: value for name, value in action.wanted.items() if name != "status"}
    return {"error": action.halting_error_key} if action.halting_error_key else None


def _stages(action: BulkAction) -> list[tuple[str, str, str]]:
    """The stages of a staged action: name, note and state of each."""
    if not action.in_stages:
        return []
    ends = [*(min(end, action.total) for end in STAGE_ENDS), action.total]
    names = ("one", "ten more", "the rest")
    stages = []
    for number, (name, begin, end) in enumerate(zip(names, [0, *ends], ends, strict=False)):
        if begin >= end and number:
            continue
        if action.stage > number or action.status is BulkStatus.FINISHED:
            state, note = "done", f"{end - begin} done"
        elif action.stage == number:
            state, note = _present_stage(action, end)
        else:
            state, note = "ahead", f"{end - begin} not processed"
        stages.append((name, note, state))
    return stages


def _present_stage(action: BulkAction, end: int) -> tuple[str, str]:
    if action.status is BulkStatus.HALTED:
        return "bad", "the same error occurred again"
    if action.status is BulkStatus.CANCELLED:
        return "wait", "cancelled here"
    return "here", "waiting for delivery results" if action.settled >= end else "retrying"


def _outcomes(action: BulkAction, path: str) -> list[tuple[str, int, str, str | None]]:
    """The tabs by outcome: label, count, URL and outcome name."""
    counts = {RowOutcome.DONE: action.done, RowOutcome.CONFLICT: action.conflicts, RowOutcome.GONE: action.gone}
    every = ("all", action.total, path, None)
    return [every, *((o.value, count, address(path, {}, outcome=o.value), o.value) for o, count in counts.items())]


ROUTES = (
    PageRoute("GET", PATH, page, Access.VIEWER),
    PageRoute("GET", f"{PATH}/{{action_id}}", one, Access.OWNER_READ),
    PageRoute("POST", f"{PATH}/{{action_id}}/cancel", cancel, Access.OWNER_OPERATE),
)

"""Bulk actions: which there were, how far each has come, and what it came to for each notification."""

from collections.abc import Mapping, Sequence

from starlette.responses import Response

from fieldpost.core.bulk import STAGE_ENDS, BulkAction, BulkStatus, RowOutcome
from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.core.search.fingerprint import fingerprint_key
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.filters import address
from fieldpost.front.console.kit.request import PageRequest, PageRoute, field_errors, redirect
from fieldpost.front.console.new_bulk_action import PATH
from fieldpost.front.console.notifications import PATH as OUTBOX

NOTICES = {
    "started": "Started. The action continues in the background; you can leave this page.",
    "cancelled": "Cancelled. Processed notifications are not reverted; the rest remain parked.",
}
NEW = f"{PATH}/new"


async def page(request: PageRequest) -> Response:
    cursor = request.http.query_params.get("cursor") or None
    found = await request.backend.watch.bulk_actions.page(cursor=cursor)
    return request.page("bulk_actions.html", found=found, as_of=found.as_of, cursor=cursor, about=about, older=_older)


async def one(request: PageRequest) -> Response:
    return await _one(request, notice=request.notice(NOTICES))


async def cancel(request: PageRequest) -> Response:
    await request.form()
    action_id = request.path("action_id")
    try:
        await request.backend.operate.bulk_actions.cancel(request.actor, action_id)
    except Conflict as error:
        return await _one(request, 409, warning=f"Not cancelled: {error.message}.")
    return redirect(f"{PATH}/{action_id}", "cancelled")


async def _one(
    request: PageRequest, status: int = 200, notice: str | None = None, warning: str | None = None
) -> Response:
    query = request.http.query_params
    outcome, cursor = query.get("outcome") or None, query.get("cursor") or None
    action_id = request.path("action_id")
    errors: dict[str, str] = {}
    watch = request.backend.watch.bulk_actions
    try:
        story = await watch.story(action_id, outcome=outcome, cursor=cursor)
    except InvalidInput as error:
        # The act is there all the same; only this part of its rows is not.
        errors, status = field_errors(error), 422
        story = await watch.story(action_id)
        outcome = cursor = None
    act = story.act
    path = f"{PATH}/{action_id}"
    return request.page(
        "bulk_action.html",
        status,
        story=story,
        act=act,
        as_of=story.as_of,
        remaining=act.remaining(story.as_of),
        about=about(act),
        shown_by=shown_by(act),
        next_steps=_next_steps(act),
        stages=_stages(act),
        outcomes=_outcomes(act, path),
        outcome=outcome,
        cursor=cursor,
        rows_path=lambda **more: address(path, {}, outcome=outcome, **more),
        errors=errors,
        here=address(path, {}, outcome=outcome, cursor=cursor),
        notice=notice,
        warning=warning,
    )


def about(act: BulkAction) -> str:
    """What the act is about, in words."""
    if act.wanted is None:
        return "a selection"
    words = {"list": "list", "site": "site", "type": "type", "subject": "subject", "error": "error group"}
    said = [f"{word} {act.wanted[name]}" for name, word in words.items() if name in act.wanted]
    times = [
        f"{word} {str(act.wanted[name])[:16]}Z" for name, word in (("from", "from"), ("to", "to")) if name in act.wanted
    ]
    return ", ".join(said + times) or "all parked"


def shown_by(act: BulkAction) -> str | None:
    """Where what still fits its filter is shown; nowhere for a selection."""
    return None if act.wanted is None else address(OUTBOX, act.wanted)


def _next_steps(act: BulkAction) -> list[tuple[str, str, bool]]:
    """What one can do about the rest of an act that ended before its end: a label, where it leads, whether it harms."""
    if act.status not in (BulkStatus.HALTED, BulkStatus.CANCELLED) or not act.left:
        return []
    fields = _rest(act)
    if fields is None:
        return []
    back = f"{PATH}/{act.action_id}"
    return [
        ("Retry in stages again…", address(NEW, {"verb": "retry", "pace": "stages", **fields}, back=back), False),
        ("Retry all anyway…", address(NEW, {"verb": "retry", **fields}, back=back), False),
        ("Discard the rest…", address(NEW, {"verb": "discard", **fields}, back=back), True),
    ]


def _rest(act: BulkAction) -> Mapping[str, str | Sequence[str]] | None:
    """The filter under which what it did not come to is found again."""
    if act.wanted is not None:
        return {name: value for name, value in act.wanted.items() if name != "status"}
    came_back = (act.note or "").removeprefix("the same error came back: ")
    return {"error": fingerprint_key(came_back)} if came_back != (act.note or "") else None


def _stages(act: BulkAction) -> list[tuple[str, str, str]]:
    """Of an act in stages: each by its name, what it is about, and how it stands."""
    if not act.in_stages:
        return []
    ends = [*(min(end, act.total) for end in STAGE_ENDS), act.total]
    names = ("one", "ten more", "the rest")
    stages = []
    for number, (name, begin, end) in enumerate(zip(names, [0, *ends], ends, strict=False)):
        if begin >= end and number:
            continue
        if act.stage > number or act.status is BulkStatus.FINISHED:
            standing, note = "done", f"{end - begin} done"
        elif act.stage == number:
            standing, note = _present_stage(act, end)
        else:
            standing, note = "ahead", f"{end - begin} not processed"
        stages.append((name, note, standing))
    return stages


def _present_stage(act: BulkAction, end: int) -> tuple[str, str]:
    if act.status is BulkStatus.HALTED:
        return "bad", "the same error occurred again"
    if act.status is BulkStatus.CANCELLED:
        return "wait", "cancelled here"
    return "here", "waiting for delivery results" if act.settled >= end else "retrying"


def _outcomes(act: BulkAction, path: str) -> list[tuple[str, int, str, str | None]]:
    """The rows by what they came to: a word, how many, where they are shown, and the name of the outcome."""
    counts = {RowOutcome.DONE: act.done, RowOutcome.CONFLICT: act.conflicts, RowOutcome.GONE: act.gone}
    every = ("all", act.total, path, None)
    return [every, *((o.value, count, address(path, {}, outcome=o.value), o.value) for o, count in counts.items())]


def _older(cursor: str) -> str:
    return address(PATH, {}, cursor=cursor)


ROUTES = (
    PageRoute("GET", PATH, page, Access.VIEWER),
    PageRoute("GET", f"{PATH}/{{action_id}}", one, Access.VIEWER),
    PageRoute("POST", f"{PATH}/{{action_id}}/cancel", cancel, Access.OPERATOR),
)

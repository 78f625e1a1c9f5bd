"""One notification's page: where it stands and why, its way from script to inbox, and what an operator can do."""

from starlette.responses import Response

from fieldpost.central.operate.notifications import NotAsSeen
from fieldpost.central.watch.timeline import timeline
from fieldpost.core.errors import InvalidInput
from fieldpost.core.notification import Status
from fieldpost.front.auth import Access
from fieldpost.front.console.forms import local_path
from fieldpost.front.console.outbox import NOTICES
from fieldpost.front.console.visit import PageRoute, Visit, redirect


async def page(visit: Visit) -> Response:
    return await _page(visit, notice=visit.notice(NOTICES))


async def retry(visit: Visit) -> Response:
    form = await visit.form()
    try:
        await visit.rooms.operate.notifications.retry(visit.actor, visit.path("notification_id"), _version(form))
    except NotAsSeen as error:
        return await _page(visit, 409, warning=_too_late(error))
    return _back(visit, form, "retried")


async def ask_discard(visit: Visit) -> Response:
    detail = await visit.rooms.watch.notifications.detail(visit.path("notification_id"))
    n = detail.notification
    own_path = f"/notifications/{n.notification_id}"
    return visit.page(
        "ask.html",
        title="Discard this notification?",
        text=f"“{n.subject or '(no subject)'}” from {n.provenance.site} will not be sent. Its record stays.",
        action=f"{own_path}/discard",
        hidden={"version": n.version, "next": local_path(visit.request.query_params.get("next") or own_path)},
        button="Discard",
        is_danger=True,
        back=own_path,
        why_not=None if n.status is Status.PARKED else f"It is {n.status.value}; only what is parked can be discarded.",
    )


async def discard(visit: Visit) -> Response:
    form = await visit.form()
    try:
        await visit.rooms.operate.notifications.discard(visit.actor, visit.path("notification_id"), _version(form))
    except NotAsSeen as error:
        return await _page(visit, 409, warning=_too_late(error))
    return _back(visit, form, "discarded")


async def _page(visit: Visit, status: int = 200, notice: str | None = None, warning: str | None = None) -> Response:
    detail = await visit.rooms.watch.notifications.detail(visit.path("notification_id"))
    n = detail.notification
    return visit.page(
        "notification.html",
        status,
        detail=detail,
        n=n,
        as_of=detail.as_of,
        steps=timeline(n, detail.attempts, detail.audit),
        notice=notice,
        warning=warning,
        here=f"/notifications/{n.notification_id}",
    )


def _version(form: dict[str, str]) -> int:
    text = form.get("version", "")
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise InvalidInput("form.version", "the form names no version", field="version")
    return int(text)


def _too_late(error: NotAsSeen) -> str:
    return f"Nothing was done: {error.message}. This is how it stands now."


def _back(visit: Visit, form: dict[str, str], done: str) -> Response:
    """To the page whose button was pressed, which then says what was done."""
    return redirect(local_path(form.get("next") or f"/notifications/{visit.path('notification_id')}"), done)


ROUTES = (
    PageRoute("GET", "/notifications/{notification_id}", page, Access.VIEWER),
    PageRoute("POST", "/notifications/{notification_id}/retry", retry, Access.OPERATOR),
    PageRoute("GET", "/notifications/{notification_id}/discard", ask_discard, Access.OPERATOR),
    PageRoute("POST", "/notifications/{notification_id}/discard", discard, Access.OPERATOR),
)

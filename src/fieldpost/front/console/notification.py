"""One notification's page: where it stands and why, its way from script to inbox, and what an operator can do."""

from urllib.parse import urlsplit

from starlette.responses import Response

from fieldpost.central.operate.notifications import NotAsSeen
from fieldpost.central.watch.timeline import timeline
from fieldpost.core.errors import InvalidInput
from fieldpost.front.console.forms import local_path
from fieldpost.front.console.outbox import NOTICES
from fieldpost.front.console.visit import Visit, redirect


async def page(visit: Visit) -> Response:
    return await _page(visit, notice=NOTICES.get(visit.request.query_params.get("done", "")))


async def retry(visit: Visit) -> Response:
    form = await visit.form()
    try:
        await visit.rooms.operate.notifications.retry(visit.actor, visit.path("notification_id"), _version(form))
    except NotAsSeen as error:
        return await _page(visit, 409, warning=_too_late(error))
    return _back(visit, form, "retried")


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
    template = "_notification_live.html" if visit.is_live_update else "notification.html"
    return visit.page(
        template,
        status,
        detail=detail,
        n=n,
        as_of=detail.as_of,
        steps=timeline(n, detail.attempts, detail.audit),
        notice=notice,
        warning=warning,
        own_path=f"/notifications/{n.notification_id}",
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
    path = local_path(form.get("next") or f"/notifications/{visit.path('notification_id')}")
    return redirect(f"{path}{'&' if urlsplit(path).query else '?'}done={done}")

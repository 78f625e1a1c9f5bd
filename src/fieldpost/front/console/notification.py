"""The page of a notification: explanation, progress, timeline, retry and discard."""

import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from starlette.responses import Response

from fieldpost.central.operate.notifications import NotAsSeen
from fieldpost.central.watch.notifications import Detail
from fieldpost.central.watch.timeline import cycles, stops, timeline
from fieldpost.core.actor import APP, Actor, Role
from fieldpost.core.audit import AuditKind, AuditStatus
from fieldpost.core.delivery.explain import parts
from fieldpost.core.events.subscription import SUBSCRIPTION_KEY
from fieldpost.core.notification import Notification, Status
from fieldpost.core.search.fingerprint import fingerprint_key
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.filters import address
from fieldpost.front.console.kit.forms import local_path, version_of
from fieldpost.front.console.kit.request import PageRequest, PageRoute, redirect
from fieldpost.front.console.notifications import NOT_DELIVERED, NOTICES
from fieldpost.front.console.notifications import PATH as NOTIFICATIONS

PLACEHOLDER = "https://CENTRAL"
"""Placeholder for the URL of central in commands if it is not known."""
FOLD = 240
"""Longer replies and errors are folded."""
BODY_SHOWN = 20_000
"""Longer bodies are cut at this length; the rest is folded."""


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """An action as a curl and a CLI command, to be run with the user's own token."""

    name: str
    curl: str
    cli: str


async def page(request: PageRequest) -> Response:
    back = request.http.query_params.get("back")
    return await _page(request, back=local_path(back) if back else NOTIFICATIONS, notice=request.notice(NOTICES))


async def retry(request: PageRequest) -> Response:
    return await _act(request, request.operate.notifications.retry, "retried")


async def resend(request: PageRequest) -> Response:
    return await _act(request, request.operate.notifications.resend, "resent")


async def discard(request: PageRequest) -> Response:
    return await _act(request, request.operate.notifications.discard, "discarded")


async def confirm_discard(request: PageRequest) -> Response:
    detail = await request.watch.notifications.detail(request.path("notification_id"))
    n = detail.notification
    own_path = _path(n)
    following = local_path(request.http.query_params.get("next") or own_path)
    return request.confirm(
        title="Discard this notification?",
        quoted=n.subject or "(no subject)",
        text=f"from {n.provenance.site} will not be sent. Its record is kept.",
        action=f"{own_path}/discard",
        hidden={"version": n.version, "next": following},
        button="Discard",
        back=following,
        why_not=None
        if n.status is Status.PARKED
        else f"It is {n.status.value}, and only parked ones can be discarded.",
    )


async def _page(
    request: PageRequest, status: int = 200, *, back: str, notice: str | None = None, conflict: NotAsSeen | None = None
) -> Response:
    detail = await request.watch.seen_notification(request.actor, request.path("notification_id"))
    n = detail.notification
    if request.may(Role.SUBSCRIBER) and back.startswith(NOTIFICATIONS):
        # Subscribers come from a delivery log and have no page of all notifications.
        back = f"/subscriptions/{_subscription_of(n.delivery_key)}/log"
    return request.page(
        "notification.html",
        status,
        detail=detail,
        n=n,
        as_of=detail.as_of,
        why=parts(detail.why),
        stops=stops(n, detail.attempts, detail.channel),
        cycles=cycles(timeline(n, detail.attempts, detail.audit, detail.next_attempt_at)),
        is_app=n.provenance.site.startswith(APP),
        subscription_id=_subscription_of(n.delivery_key),
        same_error=_same_error(n),
        commands=_commands(request, n),
        has_own_url=request.own_url is not None,
        placeholder=PLACEHOLDER,
        is_update=request.is_live_update,
        fold=FOLD,
        body_shown=BODY_SHOWN,
        back=back,
        here=address(_path(n), {}, back=back if back != NOTIFICATIONS else None),
        notice=notice,
        warning=_conflict_text(detail, conflict) if conflict else None,
    )


def _same_error(n: Notification) -> str | None:
    """The URL of the notifications with the same error: a group if parked, else a search for undelivered ones."""
    if not n.last_error:
        return None
    statuses = (n.status,) if n.status is Status.PARKED else NOT_DELIVERED
    return address(NOTIFICATIONS, {"status": statuses, "error": fingerprint_key(n.last_error)})


def _commands(request: PageRequest, n: Notification) -> list[ShellCommand]:
    base = request.own_url or PLACEHOLDER
    url = f"{base}/api/v1/notifications/{n.notification_id}"
    token = '-H "Authorization: Bearer $FIELDPOST_TOKEN"'
    cli, where = "fieldpost notifications", f"--url {shlex.quote(base)}"
    found = [ShellCommand("show", f"curl {token} {shlex.quote(url)}", f"{cli} show {n.notification_id} {where}")]
    may_act = n.status is Status.PARKED and request.may(Role.OPERATOR)
    for verb in ("retry", "discard") if may_act else ():
        seen = f"-H 'Content-Type: application/json' -d '{{\"version\": {n.version}}}'"
        curl = f"curl -X POST {token} {seen} {shlex.quote(f'{url}/{verb}')}"
        found.append(ShellCommand(verb, curl, f"{cli} {verb} {n.notification_id} {where}"))
    return found


async def _act(request: PageRequest, action: Callable[[Actor, str, int], Awaitable[object]], done: str) -> Response:
    """Act, and go back to the page of the button; after a conflict, show the current state with a link back to it."""
    form, notification_id = await request.form(), request.path("notification_id")
    own_path = f"{NOTIFICATIONS}/{notification_id}"
    try:
        await action(request.actor, notification_id, version_of(form))
    except NotAsSeen as error:
        following = local_path(form.get("next") or NOTIFICATIONS)
        parted = urlsplit(following)
        if parted.path == own_path:
            following = local_path((parse_qs(parted.query).get("back") or [NOTIFICATIONS])[0])
        return await _page(request, 409, back=following, conflict=error)
    return redirect(local_path(form.get("next") or own_path), done)


def _conflict_text(detail: Detail, error: NotAsSeen) -> str:
    done = {AuditStatus.SUBMITTED: "retried", AuditStatus.DISCARDED: "discarded"}
    actions = [e for e in detail.audit if e.kind is AuditKind.OPERATOR_ACTION and e.status in done]
    who = f" {actions[-1].actor} has {done[actions[-1].status]} it." if actions else ""
    return f"Nothing was changed: {error.message}.{who}"


def _path(n: Notification) -> str:
    return f"{NOTIFICATIONS}/{n.notification_id}"


def _subscription_of(delivery_key: str) -> str | None:
    """The id of the subscription that the key belongs to; None for a list."""
    return delivery_key.removeprefix(SUBSCRIPTION_KEY) if delivery_key.startswith(SUBSCRIPTION_KEY) else None


ROUTES = (
    PageRoute("GET", f"{NOTIFICATIONS}/{{notification_id}}", page, Access.OWNER_READ),
    PageRoute("POST", f"{NOTIFICATIONS}/{{notification_id}}/retry", retry, Access.OPERATOR),
    PageRoute("POST", f"{NOTIFICATIONS}/{{notification_id}}/resend", resend, Access.OWNER_OPERATE),
    PageRoute("GET", f"{NOTIFICATIONS}/{{notification_id}}/discard", confirm_discard, Access.OPERATOR),
    PageRoute("POST", f"{NOTIFICATIONS}/{{notification_id}}/discard", discard, Access.OPERATOR),
)

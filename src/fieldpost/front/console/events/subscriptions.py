"""Subscriptions: the list, one subscription with its form and actions, and the receivers that fail."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial

from starlette.responses import Response

from fieldpost.central.access.ownership import own_name
from fieldpost.central.operate.subscriptions import SecretShown
from fieldpost.central.operate.trial import Trial
from fieldpost.central.watch.events.subscriptions import HELD_MAX, SubscriptionHealth
from fieldpost.central.watch.issue import IssueCode
from fieldpost.core.delivery.explain import explain_attempt
from fieldpost.core.delivery.retry import to_text
from fieldpost.core.errors import Conflict, InvalidInput, NotFound
from fieldpost.core.events.filter import entry_text
from fieldpost.core.events.subscription import Subscription, SubscriptionState, subscription_key
from fieldpost.core.search.filters import SUBSCRIPTION_FILTERS, parse_moment, read_filters
from fieldpost.front.auth import Access
from fieldpost.front.console.events import subscription_form
from fieldpost.front.console.kit.filters import address, read_filter
from fieldpost.front.console.kit.forms import version_of
from fieldpost.front.console.kit.request import (
    EMPTY_FORM,
    MenuLine,
    PageRequest,
    PageRoute,
    SubmittedForm,
    field_errors,
    redirect,
)
from fieldpost.front.console.kit.times import moment_in

PATH = "/subscriptions"
NEW_PATH = "/new/subscription"
UNHEALTHY_PATH = "/unhealthy-receivers"
CHANGERS = Access.OWNER_CHANGE.roles
"""The roles that may change a subscription."""
FORM_BYTES_MAX = 256 * 1024
DELIVERIES_SHOWN = 5
"""How many deliveries the page of a subscription shows; its log shows all."""
NOTICES = {
    "changed": "Subscription saved. Waiting notifications use the new values.",
    "pause": "Subscription paused. Its notifications are held.",
    "resume": "Subscription resumed. Held notifications are sent.",
    "enable": "Subscription enabled. It gets new events.",
    "disable": "Subscription disabled. Waiting notifications are parked.",
    "remove": "Subscription removed. Waiting notifications are discarded.",
    "reset": "Breaker closed. Held notifications are sent in batches.",
}
_CONFIRM: Mapping[str, tuple[str, str]] = {
    "pause": ("Pause", "Events still become notifications, which are held until the subscription is resumed."),
    "disable": ("Disable", "No notifications are created any more, and waiting ones are parked."),
    "remove": ("Remove", "No notifications are created any more, and waiting ones are discarded. The record stays."),
}


async def page(request: PageRequest) -> Response:
    query = request.http.query_params
    parsed = read_filter(query, SUBSCRIPTION_FILTERS, partial(read_filters, SUBSCRIPTION_FILTERS))
    cursor = query.get("cursor") or None
    found = None
    if parsed.is_readable:
        owner, states = own_name(request.actor, parsed.wanted.get("owner")), parsed.wanted.get("states", ())
        found = await request.watch.subscriptions.page(
            owner=owner, states=states, cursor=cursor, are_problems_first=True
        )
    return request.page(
        "subscriptions.html",
        parsed.form,
        found=found,
        # On further pages, unhealthy ones come first within the page.
        lines=sorted(found.subscriptions, key=lambda one: not one.is_unhealthy) if found else [],
        may_change=request.may(*CHANGERS),
        entry_text=entry_text,
        parsed=parsed,
        is_filtered=bool(parsed.given),
        cursor=cursor,
        held_max=HELD_MAX,
        next_path=address(PATH, parsed.read, cursor=found.next_cursor) if found and found.next_cursor else None,
        first_path=address(PATH, parsed.read) if cursor else None,
        here=address(PATH, parsed.read, cursor=cursor),
        notice=request.notice(NOTICES),
    )


async def unhealthy(request: PageRequest) -> Response:
    found = await request.watch.subscriptions.unhealthy(request.actor.owner_limit)
    blocked = sum(one.health == "blocked" for one in found.subscriptions)
    return request.page(
        "unhealthy_receivers.html",
        found=found,
        blocked=blocked,
        monitored=len(found.subscriptions) - blocked,
        held=sum(one.held for one in found.subscriptions),
        held_max=HELD_MAX,
        may_reset=request.may(*Access.OWNER_OPERATE.roles),
        notice=request.notice(NOTICES),
    )


async def one(request: PageRequest) -> Response:
    found, _ = await _found(request)
    verb = request.http.query_params.get("confirm", "")
    if verb in _CONFIRM:
        word, text = _CONFIRM[verb]
        subscription = found.subscription
        return request.confirm(
            title=f"{word} the subscription {subscription.name}?",
            text=text,
            action=f"{path_of(subscription)}/{verb}",
            button=word,
            back=path_of(subscription),
            hidden={"version": subscription.version},
            why_not=None if request.may(*CHANGERS) else "This requires the role admin.",
        )
    return await _one(request)


async def new(request: PageRequest) -> Response:
    return await _new(request)


async def add(request: PageRequest) -> Response:
    form = await request.form(FORM_BYTES_MAX)
    actions = request.operate.subscriptions
    try:
        given = subscription_form.read(actions.fields, form)
        added = await actions.add(
            request.actor,
            form.get("name", "").strip(),
            form.get("owner", "").strip() or None,
            given.filter,
            given.settings,
            given.secrets,
            retry=given.retry,
        )
    except InvalidInput as error:
        return await _new(request, SubmittedForm(form, subscription_form.errors_of(error)))
    except Conflict as error:
        return await _new(request, SubmittedForm.rejected(form, error, at="name", status=409))
    return _secret_shown(request, added, "Subscription added")


async def change(request: PageRequest) -> Response:
    form = await request.form(FORM_BYTES_MAX)
    actions = request.operate.subscriptions
    seen = await actions.get(request.path("subscription_id"), request.actor.owner_limit)
    try:
        given = subscription_form.read(actions.fields, form, seen.settings)
        await actions.change(
            request.actor,
            seen.subscription_id,
            version_of(form),
            name=form.get("name", "").strip(),
            filter=given.filter,
            settings=given.settings,
            secrets=given.secrets,
            retry=given.retry,
        )
    except InvalidInput as error:
        return await _one(request, SubmittedForm(form, subscription_form.errors_of(error)))
    except Conflict as error:
        return await _one(request, SubmittedForm.rejected(form, error, status=409))
    return redirect(path_of(seen), "changed")


async def rotate(request: PageRequest) -> Response:
    form = await request.form()
    rotated = await request.operate.subscriptions.rotate(
        request.actor, request.path("subscription_id"), version_of(form)
    )
    return _secret_shown(request, rotated, "Secret rotated")


async def test(request: PageRequest) -> Response:
    """Send a signed test event; the page shows how far it came."""
    await request.form()
    tested = await request.operate.subscriptions.test(request.actor, request.path("subscription_id"))
    return await _one(request, tested=tested)


async def confirm_recovery(request: PageRequest) -> Response:
    """Ask for the time since which events are sent again, and count them."""
    found, as_of = await _found(request)
    query = request.http.query_params
    given, errors, preview = {"since": query.get("since", "")}, {}, None
    since = None
    if given["since"]:
        try:
            since = moment_in(given["since"], query.get("zone", ""), "since")
            preview = await request.operate.recovery.preview(request.actor, found.subscription.subscription_id, since)
        except InvalidInput as error:
            errors = field_errors(error)
    return request.page(
        "subscription_recover.html",
        SubmittedForm(given, errors, 422 if errors else 200),
        subscription=found.subscription,
        preview=preview,
        since=since,
        # Most recoveries are about an outage: since when it was disabled, or its receiver fails.
        suggested=found.subscription.state_at
        if found.subscription.state is SubscriptionState.DISABLED
        else found.breaker.failing_since,
        zone=query.get("zone", ""),
        own_path=path_of(found.subscription),
        as_of=as_of,
    )


async def recover(request: PageRequest) -> Response:
    """Start the recovery, after enabling a disabled subscription; its progress is on the page of the bulk action."""
    form, id_ = await request.form(), request.path("subscription_id")
    since = parse_moment(form.get("since", ""), "since")
    seen = await request.operate.subscriptions.get(id_, request.actor.owner_limit)
    if seen.state is SubscriptionState.DISABLED:
        _, action = await request.operate.subscriptions.enable(request.actor, id_, seen.version, since)
        assert action is not None, "a recovery was asked for"
    else:
        reason = form.get("reason", "").strip() or "recovered"
        action = await request.operate.recovery.start(request.actor, id_, since, reason)
    return redirect(f"/bulk-actions/{action.action_id}")


async def move(request: PageRequest) -> Response:
    """Pause, resume, disable or remove."""
    form = await request.form()
    actions, verb = request.operate.subscriptions, request.path("verb")
    id_, version = request.path("subscription_id"), version_of(form)
    reason = form.get("reason", "").strip() or None
    match verb:
        case "pause":
            await actions.pause(request.actor, id_, version, reason)
        case "resume":
            await actions.resume(request.actor, id_, version)
        case "enable":
            await actions.enable(request.actor, id_, version, None)
        case "disable":
            await actions.disable(request.actor, id_, version, reason)
        case "remove":
            await actions.remove(request.actor, id_, version, reason)
        case _:
            raise NotFound("page.unknown", "this page does not exist")
    return redirect(PATH if verb == "remove" else f"{PATH}/{id_}", verb)


async def reset(request: PageRequest) -> Response:
    """Close the breaker of one receiver, or of all that fail."""
    form = await request.form()
    id_ = form.get("subscription_id", "")
    found = await request.watch.subscriptions.unhealthy(request.actor.owner_limit)
    chosen = [one for one in found.subscriptions if id_ in ("", one.subscription.subscription_id)]
    for one in chosen:
        await request.operate.breakers.reset(request.actor, subscription_key(one.subscription.subscription_id))
    return redirect(UNHEALTHY_PATH, "reset")


def path_of(subscription: Subscription) -> str:
    return f"{PATH}/{subscription.subscription_id}"


async def _found(request: PageRequest) -> tuple[SubscriptionHealth, datetime]:
    """The subscription of the page, and the time of the query."""
    return await request.watch.subscriptions.one(request.path("subscription_id"), request.actor.owner_limit)


async def _new(request: PageRequest, form: SubmittedForm = EMPTY_FORM) -> Response:
    return request.page(
        "new_subscription.html",
        form,
        fields=request.operate.subscriptions.fields,
        values={"filter": request.http.query_params.get("filter", "topic=*")},
        secrets={},
        secret_names=subscription_form.SECRETS,
        topics=[topic.name for topic in await request.watch.events.topics(request.actor.owner_limit)],
    )


async def _one(request: PageRequest, form: SubmittedForm = EMPTY_FORM, tested: Trial | None = None) -> Response:
    found, as_of = await _found(request)
    subscription, actions = found.subscription, request.operate.subscriptions
    log = await request.watch.deliveries.page(request.actor, subscription.subscription_id, limit=DELIVERIES_SHOWN)
    return request.page(
        "subscription.html",
        form,
        found=found,
        subscription=subscription,
        fields=actions.fields,
        values=subscription_form.shown(actions.fields, subscription),
        secrets=actions.shown_secrets(subscription),
        secret_names=subscription_form.SECRETS,
        entries=[entry_text(entry) for entry in subscription.filter],
        retry_text=to_text(subscription.retry) if subscription.retry else "",
        why=_why(found),
        log=log,
        explain_attempt=explain_attempt,
        may_change=request.may(*CHANGERS),
        tested=tested,
        steps=actions.steps(subscription, tested) if tested else (),
        own_path=path_of(subscription),
        as_of=as_of,
        held_max=HELD_MAX,
        here=path_of(subscription),
        notice=request.notice(NOTICES),
    )


def _why(found: SubscriptionHealth) -> str | None:
    """One sentence about a subscription that does not receive events at present."""
    subscription = found.subscription
    since = f" by {subscription.state_by}" if subscription.state_by else ""
    reason = f": {subscription.state_reason}" if subscription.state_reason else ""
    match found.health:
        case "blocked":
            return f"The receiver fails, so nothing is sent: {found.breaker.last_error or 'no answer'}"
        case "monitored":
            failures = found.breaker.failures
            times = "once" if failures == 1 else f"{failures} times"
            return f"The receiver failed {times}: {found.breaker.last_error or 'no answer'}"
        case "paused":
            untested = "" if subscription.is_verified else " Its receiver has not answered a signed test yet."
            return f"Paused{since}{reason}. Its notifications are held.{untested}"
        case "disabled":
            return f"Disabled{since}{reason}. No notifications are created for it."
        case "removed":
            return f"Removed{since}{reason}."
        case "unverified":
            return (
                "The receiver has not answered a signed test yet. Notifications are created and held; they are sent"
                " once it answers a test with 2xx."
            )
        case _:
            return None


def _secret_shown(request: PageRequest, made: SecretShown, title: str) -> Response:
    """The page after adding or rotating; the only one that shows the secret."""
    return request.page(
        "subscription_secret.html",
        title=title,
        subscription=made.subscription,
        secret=made.secret.reveal() if made.secret else None,
        own_path=path_of(made.subscription),
    )


MENU = MenuLine(
    "Subscriptions",
    PATH,
    "Set up",
    "b",
    Access.OWNER_READ,
    also=(NEW_PATH, UNHEALTHY_PATH),
    badge=(IssueCode.RECEIVER_BLOCKED,),
    badge_label="blocked",
)
ROUTES = (
    PageRoute("GET", PATH, page, Access.OWNER_READ),
    PageRoute("POST", PATH, add, Access.OWNER_CHANGE),
    PageRoute("GET", NEW_PATH, new, Access.OWNER_CHANGE),
    PageRoute("GET", UNHEALTHY_PATH, unhealthy, Access.OWNER_READ),
    PageRoute("POST", f"{UNHEALTHY_PATH}/reset", reset, Access.OWNER_OPERATE),
    PageRoute("GET", PATH + "/{subscription_id}", one, Access.OWNER_READ),
    PageRoute("POST", PATH + "/{subscription_id}/change", change, Access.OWNER_CHANGE),
    PageRoute("POST", PATH + "/{subscription_id}/rotate", rotate, Access.OWNER_CHANGE),
    PageRoute("GET", PATH + "/{subscription_id}/recover", confirm_recovery, Access.OWNER_OPERATE),
    PageRoute("POST", PATH + "/{subscription_id}/recover", recover, Access.OWNER_OPERATE),
    PageRoute("POST", PATH + "/{subscription_id}/test", test, Access.OWNER_CHANGE),
    PageRoute("POST", PATH + "/{subscription_id}/{verb}", move, Access.OWNER_CHANGE),
)

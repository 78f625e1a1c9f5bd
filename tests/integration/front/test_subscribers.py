"""The role subscriber: it sees and changes the subscriptions of its owner, and cannot guess that others exist."""

from datetime import timedelta
from typing import Any

import httpx2
import pytest

from fieldpost.central.store.events import topics
from fieldpost.central.store.notifications import breakers
from fieldpost.core.actor import Actor, Role
from fieldpost.core.delivery.breaker import Breaker, BreakerState
from fieldpost.core.delivery.exchange import Exchange
from fieldpost.core.delivery.outcome import Delivered, Evidence, PermanentFailure, TransientFailure
from fieldpost.core.errors import Denied
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.subscription import subscription_key
from fieldpost.core.events.topic import Topic
from fieldpost.front.api.routes import ROUTES
from fieldpost.front.auth import Access
from support.centre import ScriptedAdapter
from support.front import ADMIN, OWNER, SUBSCRIBER, Front
from support.visitor import visiting

URL = "https://93.184.216.34/in"
PATH = "/api/v1/subscriptions"
UNKNOWN = "0198c8a0-0000-7000-8000-00000000dead"
NEW: dict[str, Any] = {"name": "orders", "filter": [{"topic": "*"}], "settings": {"url": URL}}
EVENT = {
    "event_id": "0198c8a0-0000-7000-8000-000000000017",
    "topic": "orders",
    "payload": {"total": "canary-total"},
}
OWN_ROUTES = {
    "GET /api/v1/openapi.json",
    "GET /api/v1/me",
    "GET /api/v1/tokens",
    "DELETE /api/v1/tokens/{token_id}",
    "GET /api/v1/topics",
    "GET /api/v1/topics/{name}",
    "GET /api/v1/notifications/{notification_id}",
    "POST /api/v1/notifications/{notification_id}/resend",
    "GET /api/v1/bulk-actions/{action_id}",
    "GET /api/v1/bulk-actions/{action_id}/rows",
    "POST /api/v1/bulk-actions/{action_id}/cancel",
    "POST /api/v1/breakers/{key:path}/reset",
}


@pytest.fixture
def receiver(front: Front) -> ScriptedAdapter:
    """Answers all tests as its script says; every address is accepted."""
    adapter = ScriptedAdapter("webhook")
    front.operate.subscriptions._adapters = {"webhook": adapter}  # type: ignore[assignment]
    return adapter


async def of_another_owner(front: Front) -> str:
    made = await front.operate.subscriptions.add(ADMIN, "theirs", "other", [FilterEntry(topic="*")], {"url": URL})
    return made.subscription.subscription_id


async def add(client: httpx2.AsyncClient, **more: Any) -> dict[str, Any]:
    answer = await client.post(PATH, json=NEW | more)
    assert answer.status_code == 201, answer.text
    added: dict[str, Any] = answer.json()
    return added


@pytest.mark.dec("DEC-51")
def test_a_subscriber_may_call_the_routes_of_its_subscriptions_only() -> None:
    guarded = [r for r in ROUTES if r.access not in (Access.ANYONE, Access.SITE, Access.JOIN)]
    allowed = {f"{r.method} {r.path}" for r in guarded if Role.SUBSCRIBER in r.access.roles}
    assert {one for one in allowed if not one.partition(" ")[2].startswith(PATH)} == OWN_ROUTES


@pytest.mark.dec("DEC-51", "DEC-81")
@pytest.mark.threat(17)
async def test_subscription_added_by_a_subscriber_belongs_to_its_owner_and_waits_for_a_test(
    front: Front, receiver: ScriptedAdapter
) -> None:
    async with front.client("subscriber") as client:
        added = await add(client)
        assert (added["owner"], added["state"], added["is_verified"]) == (OWNER, "unverified", False)
        assert added["is_restricted"] is True
        path = f"{PATH}/{added['subscription_id']}"
        receiver.always["orders"] = TransientFailure("the receiver answered 500", phase="answer")
        assert (await client.post(f"{path}/test")).json()["outcome"] != "delivered"
        assert (await client.get(path)).json()["state"] == "unverified"
        receiver.always["orders"] = Delivered()
        assert (await client.post(f"{path}/test")).json()["outcome"] == "delivered"
        verified = (await client.get(path)).json()
        assert (verified["state"], verified["is_verified"]) == ("active", True)
        denied = await client.post(PATH, json=NEW | {"name": "x", "owner": "other"})
        assert (denied.status_code, denied.json()["code"]) == (403, "access.own")


@pytest.mark.dec("DEC-81")
@pytest.mark.threat(17)
async def test_changed_url_always_needs_another_test(front: Front, receiver: ScriptedAdapter) -> None:
    async with front.client("subscriber") as client, front.client("admin") as admin:
        added = await add(client)
        path = f"{PATH}/{added['subscription_id']}"
        await client.post(f"{path}/test")
        version = (await client.get(path)).json()["version"]
        same = await client.patch(path, json={"version": version, "name": "renamed"})
        assert same.json()["state"] == "active", "only the URL needs a test"
        moved = (await client.patch(path, json={"version": version + 1, "settings": {"url": f"{URL}/2"}})).json()
        assert (moved["state"], moved["is_verified"]) == ("unverified", False)
        version = moved["version"]
        for verb, state in (
            ("pause", "paused"),
            ("resume", "unverified"),
            ("disable", "disabled"),
            ("enable", "unverified"),
        ):
            answer = await client.post(f"{path}/{verb}", json={"version": version})
            assert answer.json()["state"] == state, (verb, answer.text)
            version = answer.json()["version"]
        by_admin = (await admin.patch(path, json={"version": version, "settings": {"url": f"{URL}/3"}})).json()
        assert by_admin["is_verified"] is False, "an administrator's change does not vouch for the receiver"
        paused = (await client.post(f"{path}/pause", json={"version": by_admin["version"]})).json()
        await client.post(f"{path}/test")
        tested = (await client.get(path)).json()
        assert (tested["state"], tested["is_verified"]) == ("paused", True), "a test does not end a pause"
        resumed = await client.post(f"{path}/resume", json={"version": paused["version"] + 1})
        assert resumed.json()["state"] == "active"


@pytest.mark.dec("DEC-81")
async def test_subscription_added_by_an_administrator_is_active_at_once(front: Front) -> None:
    async with front.client("admin") as admin:
        added = await add(admin, owner=OWNER)
        changed = await admin.patch(
            f"{PATH}/{added['subscription_id']}", json={"version": 1, "settings": {"url": f"{URL}/2"}}
        )
    assert (added["state"], added["is_restricted"], changed.json()["state"]) == ("active", False, "active")


@pytest.mark.dec("DEC-51")
@pytest.mark.threat(7)
async def test_another_owners_subscription_answers_like_one_that_does_not_exist(front: Front) -> None:
    theirs = await of_another_owner(front)
    key = subscription_key(theirs)
    until = front.clock.now() + timedelta(minutes=5)
    blocked = Breaker(key, state=BreakerState.OPEN, failures=10, last_error="503", open_until=until)
    await front.centre.store.write(breakers.change, key, lambda _: blocked)
    sent = await published(front, theirs)
    recovery = await front.operate.recovery.start(ADMIN, theirs, front.clock.now(), "again")
    subjects = {"subscription_id": theirs, "notification_id": sent, "action_id": recovery.action_id, "key:path": key}
    missing = dict.fromkeys(subjects, UNKNOWN) | {"key:path": subscription_key(UNKNOWN)}
    tried = 0
    async with front.client("subscriber") as client:
        for route in ROUTES:
            name = route.path.partition("{")[2].partition("}")[0]
            if name not in subjects or Role.SUBSCRIBER not in (route.access.roles if route.access in OWNED else ()):
                continue
            answers = [
                await client.request(
                    route.method, route.path.replace("{" + name + "}", one[name]), params=SINCE, json=BODY | SINCE
                )
                if "recover" in route.path
                else await client.request(route.method, route.path.replace("{" + name + "}", one[name]), json=BODY)
                for one in (subjects, missing)
            ]
            texts = [a.text.replace(s[name], "ID") for a, s in zip(answers, (subjects, missing), strict=True)]
            assert texts[0] == texts[1], route
            assert [one.status_code for one in answers] in ([404] * 2, [422] * 2), route
            tried += answers[0].status_code == 404
        assert (await client.get(PATH)).json()["subscriptions"] == []
        assert (await client.get(f"{PATH}/unhealthy")).json()["subscriptions"] == []
        known, unknown = [(await client.get(PATH, params={"cursor": id_})) for id_ in (theirs, UNKNOWN)]
        assert (known.status_code, known.text) == (400, unknown.text), "a cursor reveals nothing either"
        free = await add(client, name="theirs")
        assert free["name"] == "theirs", "a name that another owner uses is free"
    assert tried >= 12
    assert (await front.operate.subscriptions.get(theirs)).version == 1, "nothing was changed"


BODY: dict[str, object] = {"version": 1}
SINCE: dict[str, Any] = {"since": "2026-01-01T00:00:00Z"}
OWNED = (Access.OWNER_READ, Access.OWNER_OPERATE, Access.OWNER_CHANGE, Access.READ_ROW)


async def published(front: Front, subscription_id: str) -> str:
    """The id of a notification for this subscription."""
    async with front.client("admin") as admin:
        await admin.put("/api/v1/topics/orders", json={})
    async with front.client("publisher") as publisher:
        answer = await publisher.post("/api/v1/events", json=EVENT)
        assert answer.status_code == 201, answer.text
    found = await front.centre.rows("select notification_id, delivery_key from notifications")
    (sent,) = [str(id_) for id_, key in found if key == subscription_key(subscription_id)]
    return sent


@pytest.mark.dec("DEC-51")
@pytest.mark.dec("DEC-67")
async def test_the_owner_reads_its_deliveries_and_a_viewer_reads_no_payload(
    front: Front, receiver: ScriptedAdapter
) -> None:
    await front.centre.store.write(topics.add, Topic(name="orders", owners=("*",)), front.clock.now())
    async with front.client("subscriber") as client, front.client("viewer") as viewer:
        own = (await add(client))["subscription_id"]
        async with front.client("publisher") as publisher:
            assert (await publisher.post("/api/v1/events", json=EVENT)).status_code == 201
        log = (await client.get(f"{PATH}/{own}/deliveries")).json()
        (delivery,) = log["deliveries"]
        path = f"/api/v1/notifications/{delivery['notification_id']}"
        event = f"/api/v1/events/{(await viewer.get('/api/v1/events')).json()['events'][0]['event_id']}"
        assert "canary-total" in (await client.get(path)).text, "it is what its receiver gets"
        for one in (
            path,
            event,
            f"{PATH}/{own}/deliveries",
            f"{PATH}/{own}",
            "/api/v1/events",
            "/api/v1/notifications",
        ):
            answer = await viewer.get(one)
            assert answer.status_code == 200
            assert "canary-total" not in answer.text, one
        assert (await client.get(event)).status_code == 403, "events of other owners cannot be guessed"


@pytest.mark.dec("DEC-81")
async def test_a_subscriber_sees_and_names_only_topics_that_name_its_owner(front: Front) -> None:
    for name, owners in {"open": ("*",), "ours": (OWNER, "other"), "closed": ("other",)}.items():
        await front.centre.store.write(topics.add, Topic(name=name, owners=owners), front.clock.now())
    async with front.client("subscriber") as client:
        shown = (await client.get("/api/v1/topics")).json()["topics"]
        assert {one["name"]: one["owners"] for one in shown} == {"open": ["*"], "ours": [OWNER]}
        closed, missing = [await client.get(f"/api/v1/topics/{name}") for name in ("closed", "missin")]
        assert (closed.status_code, closed.text.replace("closed", "missin")) == (404, missing.text)
        for topic in ("open", "ours", "o*", "fieldpost.subscription.*", "fieldpost.subscription.blocked"):
            await add(client, name=f"by {topic}", filter=[{"topic": topic}])
        for topic in ("closed", "missin"):
            refused = await client.post(PATH, json=NEW | {"filter": [{"topic": "open"}, {"topic": topic}]})
            assert (refused.status_code, refused.json()["field"]) == (422, "filter[1].topic")
            assert "no topic" in refused.json()["detail"]


@pytest.mark.dec("DEC-81")
async def test_a_filter_that_a_subscriber_changes_is_restricted_to_readable_topics(front: Front) -> None:
    """Otherwise a subscriber could widen what an administrator once granted."""
    made = await front.operate.subscriptions.add(ADMIN, "granted", OWNER, [FilterEntry(topic="secret")], {"url": URL})
    one = made.subscription.subscription_id
    renamed = await front.operate.subscriptions.change(SUBSCRIBER, one, 1, name="still granted")
    assert not renamed.is_restricted
    widened = await front.operate.subscriptions.change(SUBSCRIBER, one, 2, filter=[FilterEntry(topic="*")])
    assert widened.is_restricted
    by_admin = await front.operate.subscriptions.change(ADMIN, one, 3, filter=[FilterEntry(topic="s*")])
    assert by_admin.is_restricted, "it stays so: the subscriber may have asked for more than it may read"


@pytest.mark.dec("DEC-51")
async def test_token_reaches_the_present_owner_of_its_user(front: Front) -> None:
    made = await of_another_owner(front)
    tokens = front.operate.tokens
    front.tokens["bot"] = (await tokens.add(ADMIN, "bot", Role.SUBSCRIBER, owner="subscriber")).token
    front.tokens["other bot"] = (
        await tokens.add(ADMIN, "other bot", Role.SUBSCRIBER, owner="viewer", subscription_owner="other")
    ).token
    async with front.client("bot") as bot, front.client("other bot") as other:
        assert (await bot.get("/api/v1/me")).json()["subscription_owner"] == OWNER
        assert (await bot.get(f"{PATH}/{made}")).status_code == 404
        assert (await other.get(f"{PATH}/{made}")).status_code == 200
        await front.operate.users.change(ADMIN, "subscriber", 1, subscription_owner="other")
        assert (await bot.get(f"{PATH}/{made}")).status_code == 200
        await front.operate.users.change(ADMIN, "subscriber", 2, role=Role.VIEWER)
        assert (await bot.get(f"{PATH}/{made}")).status_code == 401, "its user is no longer a subscriber"
        assert (await other.get("/api/v1/lists")).status_code == 403, "the token has this role alone"


@pytest.mark.parametrize(
    ("path", "body", "status", "field"),
    [
        ("users", {"name": "anna", "role": "subscriber"}, 422, "subscription_owner"),
        ("users", {"name": "anna", "role": "subscriber", "subscription_owner": "*"}, 422, "subscription_owner"),
        ("users", {"name": "anna", "role": "subscriber", "subscription_owner": "a\nb"}, 422, "subscription_owner"),
        ("users", {"name": "anna", "role": "viewer", "subscription_owner": "acme"}, 422, "subscription_owner"),
        ("tokens", {"name": "bot", "role": "subscriber"}, 422, "subscription_owner"),
        ("tokens", {"name": "bot", "role": "viewer", "subscription_owner": "acme"}, 422, "subscription_owner"),
        ("tokens", {"name": "bot", "role": "subscriber", "user": "subscriber", "subscription_owner": "x"}, 409, None),
    ],
)
async def test_an_owner_name_belongs_to_the_role_subscriber(
    front: Front, path: str, body: dict[str, Any], status: int, field: str | None
) -> None:
    async with front.client("admin") as admin:
        refused = await admin.post(f"/api/v1/{path}", json=body)
    assert (refused.status_code, refused.json().get("field")) == (status, field)


async def test_a_subscriber_without_an_owner_name_reaches_nothing(front: Front) -> None:
    await of_another_owner(front)
    nobody = Actor("nobody", Role.SUBSCRIBER)
    with pytest.raises(Denied):
        await front.operate.subscriptions.add(nobody, "x", "other", [FilterEntry(topic="*")], {"url": URL})
    assert (await front.watch.subscriptions.page(owner=nobody.owner_limit)).subscriptions == []


SECRET = "canary-auth-5T0rm"
OAUTH = {
    "auth": "oauth2",
    "token_url": "https://93.184.216.34/token",
    "client_id": "shop",
}


@pytest.mark.dec("DEC-81")
@pytest.mark.threat(15)
@pytest.mark.parametrize("role", ["admin", "subscriber"])
@pytest.mark.parametrize(
    ("before", "change"),
    [
        ({"auth": "header", "auth_header": "X-Key"}, {"url": "https://93.184.216.35/in"}),
        ({"auth": "header", "auth_header": "X-Key"}, {"url": "https://93.184.216.34:8443/in"}),
        (OAUTH, {"url": "https://93.184.216.35/in"}),
        (OAUTH, {"token_url": "https://93.184.216.35/token"}),
        (OAUTH, {"auth": "header", "auth_header": "X-Key"}),
    ],
)
async def test_auth_secret_is_required_again_for_another_host(
    front: Front, role: str, before: dict[str, object], change: dict[str, object]
) -> None:
    async with front.client("admin") as admin, front.client(role) as client:
        added = await add(admin, owner=OWNER, settings={"url": URL, **before}, secrets={"auth_secret": SECRET})
        path = f"{PATH}/{added['subscription_id']}"
        refused = await client.patch(path, json={"version": 1, "settings": change})
        assert (refused.status_code, refused.json()["code"]) == (422, "settings.secret_again")
        assert refused.json()["field"] == "secrets.auth_secret"
        elsewhere = await client.patch(path, json={"version": 1, "settings": {"url": f"{URL}/other-path"}})
        assert elsewhere.status_code == 200, "the same host may read it already"
        again = {"version": 2, "settings": change, "secrets": {"auth_secret": SECRET}}
        assert (await client.patch(path, json=again)).status_code == 200


@pytest.mark.dec("DEC-51")
async def test_the_console_of_a_subscriber_shows_only_the_pages_that_it_may_use(
    front: Front, receiver: ScriptedAdapter
) -> None:
    theirs = await of_another_owner(front)
    async with visiting(front, "subscriber") as visitor:
        await visitor.look("/")
        assert visitor.page.headers["location"] == "/subscriptions"
        text = await visitor.look("/subscriptions")
        menu = visitor.page.text.partition('<nav id="menu"')[2].partition("</nav>")[0]
        assert [
            title for title in ("Health", "Notifications", "Events", "Sites", "Lists", "Audit") if title in menu
        ] == []
        assert [title for title in ("Subscriptions", "Topics", "Tokens") if title not in menu] == []
        assert "theirs" not in text
        assert "No subscriptions yet" in text
        await visitor.look("/new/subscription")
        assert 'name="owner"' not in visitor.page.text
        form = {"name": "orders", "filter": "topic=*", "settings.url": URL}
        await visitor.send("/subscriptions", **form)
        (own,) = await front.operate.subscriptions.find(owner=OWNER)
        path = f"/subscriptions/{own.subscription_id}"
        assert "has not answered a signed test yet" in await visitor.look(path)
        receiver.always["orders"] = TransientFailure("the receiver answered 500", phase="answer")
        await visitor.send(f"{path}/test")
        assert "500" in visitor.text
        assert "has not answered a signed test yet" in visitor.text
        await visitor.look(path)
        receiver.always["orders"] = Delivered()
        await visitor.send(f"{path}/test")
        assert "has not answered" not in visitor.text
        for page in (f"{path}/log", f"{path}/recover", "/unhealthy-receivers", "/topics", "/account", "/tokens"):
            await visitor.look(page)
            assert visitor.page.status_code == 200, page
            links = {link for link in LINKS if f'href="{link}' in visitor.page.text}
            assert links == set(), (page, links)
        for page in (f"/subscriptions/{theirs}", f"/subscriptions/{theirs}/log", f"/subscriptions/{theirs}/recover"):
            await visitor.look(page)
            assert visitor.page.status_code == 404, page


LINKS = (
    "/notifications?",
    '/notifications"',
    "/events",
    "/sites",
    "/lists",
    "/channels",
    "/users",
    "/audit",
    '/bulk-actions"',
)
"""Pages that a subscriber may not open, so nothing links to them."""


@pytest.mark.dec("DEC-81")
async def test_form_requests_the_auth_secret_again_at_its_field(front: Front) -> None:
    settings = {"url": URL, "auth": "header", "auth_header": "X-Key"}
    made = await front.operate.subscriptions.add(
        ADMIN, "orders", OWNER, [FilterEntry(topic="*")], settings, {"auth_secret": SECRET}
    )
    path = f"/subscriptions/{made.subscription.subscription_id}"
    form = {"name": "orders", "filter": "topic=*", "settings.auth": "header", "settings.auth_header": "X-Key"}
    async with visiting(front, "subscriber") as visitor:
        await visitor.look(path)
        moved = form | {"settings.url": "https://93.184.216.35/in"}
        await visitor.send(f"{path}/change", **moved)
        assert visitor.page.status_code == 422
        field = visitor.page.text.partition('id="f-secrets.auth_secret"')[2][:400]
        assert "must be given again, because url changed" in field, visitor.text
        await visitor.send(f"{path}/change", **moved, **{"secrets.auth_secret": SECRET})
        assert "Subscription saved" in visitor.text
        assert SECRET not in visitor.page.text


@pytest.mark.dec("DEC-51")
async def test_subscriber_recovers_resends_and_clears_own_subscriptions_only(front: Front) -> None:
    async with front.client("admin") as admin:
        own = (await add(admin, owner=OWNER))["subscription_id"]
    sent = await published(front, own)
    front.centre.adapters["webhook"] = adapter = ScriptedAdapter("webhook")
    adapter.answer("orders", PermanentFailure("the receiver answered 422", phase="answer", evidence=Evidence.FAILS))
    await front.centre.deliver()
    key = subscription_key(own)
    async with front.client("subscriber") as client, visiting(front, "subscriber") as visitor:
        why = (await client.get(f"/api/v1/notifications/{sent}")).json()
        assert (why["status"], why["notification_id"]) == ("parked", sent)
        assert [one["name"] for one in (await client.get(f"{PATH}/unhealthy")).json()["subscriptions"]] == ["orders"]
        assert (await client.post(f"/api/v1/breakers/{key}/reset")).json()["failures"] == 0
        assert (await client.get(f"{PATH}/{own}/recover", params=SINCE)).json()["parked"] == 1
        started = (await client.post(f"{PATH}/{own}/recover", json=SINCE)).json()
        action = f"/bulk-actions/{started['action_id']}"
        assert (await client.get(f"/api/v1{action}")).json()["status"] == "gathering"
        assert (await client.get(f"/api/v1{action}/rows")).json()["rows"] == []
        assert "recovery of a subscription" in await visitor.look(action)
        assert {link for link in LINKS if f'href="{link}' in visitor.page.text} == set()
        await visitor.send(f"{action}/cancel")
        assert "Cancelled" in visitor.text
        await visitor.look(f"/notifications/{sent}")
        assert {link for link in LINKS if f'href="{link}' in visitor.page.text} == set()
        await visitor.send(f"/notifications/{sent}/resend")
        assert (await client.get(f"/api/v1/notifications/{sent}")).json()["status"] == "pending"
        assert (await client.post(f"/api/v1/notifications/{sent}/discard", json={"version": 9})).status_code == 403


@pytest.mark.dec("DEC-67")
@pytest.mark.threat(16)
async def test_responses_are_visible_to_administrators_and_the_owner_only(front: Front) -> None:
    async with front.client("admin") as admin:
        own = (await add(admin, owner=OWNER))["subscription_id"]
    sent = await published(front, own)
    front.centre.adapters["webhook"] = adapter = ScriptedAdapter("webhook")
    exchange = Exchange(
        url=URL, status=200, response_headers={"X-Inner": "canary-header"}, response_body="canary-answer"
    )
    adapter.answer("orders", Delivered(exchanges=(exchange,)))
    await front.centre.deliver()
    front.tokens["stranger"] = (
        await front.operate.tokens.add(ADMIN, "stranger", Role.SUBSCRIBER, subscription_owner="other")
    ).token
    paths = (f"{PATH}/{own}/deliveries", f"/api/v1/notifications/{sent}")
    for role, status, is_shown in (
        ("admin", 200, True),
        ("subscriber", 200, True),
        ("operator", 200, False),
        ("viewer", 200, False),
        ("stranger", 404, False),
    ):
        async with front.client(role) as client:
            for path in paths:
                answer = await client.get(path)
                assert answer.status_code == status, (role, path)
                assert [one in answer.text for one in ("canary-answer", "canary-header")] == [is_shown] * 2, (
                    role,
                    path,
                )
    for name, is_shown in (("subscriber", True), ("viewer", False)):
        async with visiting(front, name) as visitor:
            for page in (f"/subscriptions/{own}/log", f"/notifications/{sent}"):
                await visitor.look(page)
                assert ("canary-answer" in visitor.text) == is_shown, (name, page)

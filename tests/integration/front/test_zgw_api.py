"""The ZGW Notificaties API: kanalen, abonnementen, notifications, and how they meet the native API."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fieldpost.central.watch.issues import IssueCode
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.route import EventRoute
from fieldpost.core.events.template import Template
from fieldpost.core.notification import Status
from fieldpost.testing import ManualClock
from support.front import ADMIN, Front, open_front
from support.schemathesis import try_zgw
from support.visitor import visiting
from support.zgw import AUTH, KANAAL, PUBLIC, SECRET, Zgw, notification, open_zgw, token


@pytest.fixture
async def zgw(front: Front) -> AsyncIterator[Zgw]:
    async with open_zgw(front) as opened:
        yield opened


def path_of(shown: dict[str, Any]) -> str:
    return str(shown["url"]).removeprefix(f"{PUBLIC}/notificaties/api/v1/")


@pytest.mark.req("ZGW-02", "ZGW-13")
async def test_ten_requests_of_the_vng_tests(zgw: Zgw) -> None:
    codes = []
    async with zgw.client() as client:
        await zgw.create("kanaal", {**KANAAL, "naam": "first"})
        listed = await client.get("abonnement")
        body = zgw.abonnement({"naam": "first", "filters": {"zaaktype": "*"}})
        created = await client.post("abonnement", json=body)
        codes += [listed.status_code, created.status_code]
        path = path_of(created.json())
        codes.append((await client.get(path)).status_code)
        codes.append((await client.put(path, json=body)).status_code)
        codes.append((await client.patch(path, json={"callbackUrl": zgw.callback.url + "/other"})).status_code)
        codes.append((await client.delete(path)).status_code)
        codes.append((await client.get("kanaal")).status_code)
        kanaal = await client.post("kanaal", json={"naam": "second", "documentatieLink": "https://a.example/"})
        codes.append(kanaal.status_code)
        codes.append((await client.get(path_of(kanaal.json()))).status_code)
        of_2019 = notification(kanaal="second", aanmaakdatum="2019-03-27T09:00:00Z")
        codes.append((await client.post("notificaties", json=of_2019)).status_code)
        assert (await client.get(path)).status_code == 404
    assert codes == [200, 201, 200, 200, 200, 204, 200, 201, 200, 201]
    assert created.headers["location"] == created.json()["url"]
    assert created.headers["api-version"] == "1.0.1"


@pytest.mark.req("ZGW-05", "ZGW-01")
async def test_a_notification_reaches_the_callback_byte_for_byte_with_its_auth(zgw: Zgw) -> None:
    await zgw.create("kanaal", KANAAL)
    await zgw.create("abonnement", zgw.abonnement({"naam": "zaken", "filters": {"#actie": "create"}}))
    await zgw.create("abonnement", zgw.abonnement({"naam": "zaken", "filters": {"#actie": "destroy"}}, path="/no"))
    sent = b'{ "extra": [1, 2],  ' + json.dumps(notification()).encode()[1:]
    async with zgw.client("publisher") as client:
        answer = await client.post("notificaties", content=sent, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.content) == (201, sent)
    await zgw.deliver()
    assert zgw.received() == [sent]
    assert zgw.received("/no") == []
    assert zgw.callback.requests[-1].headers["authorization"] == AUTH


@pytest.mark.req("ZGW-04")
async def test_a_repeated_publication_is_the_same_event(zgw: Zgw) -> None:
    await zgw.create("kanaal", KANAAL)
    await zgw.create("abonnement", zgw.abonnement())
    same = notification()
    await zgw.create("notificaties", same)
    await zgw.create("notificaties", same)
    await zgw.create("notificaties", dict(reversed(same.items())))
    await zgw.create("notificaties", same, client="publisher")
    await zgw.deliver()
    assert len(zgw.received()) == 2, "one of each client"


@pytest.mark.req("ZGW-04")
async def test_with_merge_repeats_off_each_publication_is_an_event(front: Front) -> None:
    async with open_zgw(front, merge_repeats=False) as zgw:
        await zgw.create("kanaal", KANAAL)
        await zgw.create("abonnement", zgw.abonnement())
        for _ in range(2):
            await zgw.create("notificaties", notification())
        await zgw.deliver()
        assert len(zgw.received()) == 2


@pytest.mark.req("ZGW-01")
async def test_objects_of_one_api_appear_in_the_other(zgw: Zgw) -> None:
    front = zgw.front
    await zgw.create("kanaal", KANAAL)
    made = await zgw.create("abonnement", zgw.abonnement({"naam": "zaken", "filters": {"zaaktype": "x"}}))
    async with front.client("admin") as native, zgw.client() as client:
        topic = (await native.get("/api/v1/topics/zaken")).json()
        assert (topic["is_kanaal"], topic["attributes"]) == (True, KANAAL["filters"])
        saved = {"description": "of the native API", "attributes": ["a"], "is_kanaal": True}
        assert (await native.put("/api/v1/topics/native", json=saved)).status_code == 200
        assert [one["naam"] for one in (await client.get("kanaal")).json()] == ["native", "zaken"]
        [named] = (await client.get("kanaal", params={"naam": "native"})).json()
        assert named["filters"] == ["a"]
        [subscription] = (await native.get("/api/v1/subscriptions")).json()["subscriptions"]
        assert subscription["owner"] == "both"
        assert subscription["subscription_id"] not in made["url"]
        entry = FilterEntry(topic="zaken", rule="zgw")
        hook = {"url": f"{zgw.callback.url}/native", "format": "raw"}
        await zgw.operate.subscriptions.add(ADMIN, "by an administrator", "both", [entry], hook)
        await zgw.operate.subscriptions.add(ADMIN, "native", "both", [FilterEntry(topic="zaken")], hook)
        shown = (await client.get("abonnement")).json()
    assert sorted(len(one["kanalen"][0]["filters"]) for one in shown) == [0, 1]


@pytest.mark.req("ZGW-01", "DEC-68")
async def test_the_native_api_shows_the_rule_of_an_entry_and_keeps_it(zgw: Zgw) -> None:
    await zgw.create("kanaal", KANAAL)
    made = await zgw.create("abonnement", zgw.abonnement({"naam": "zaken", "filters": {"zaaktype": "x"}}))
    url = "http://central.example/api/v1/subscriptions"
    async with zgw.bare({"Authorization": f"Bearer {zgw.front.tokens['admin']}"}) as native, zgw.client() as client:
        [seen] = (await native.get(url)).json()["subscriptions"]
        assert [entry["rule"] for entry in seen["filter"]] == ["zgw"]
        url = f"{url}/{seen['subscription_id']}"
        changed = await native.patch(url, json={"version": seen["version"], "filter": seen["filter"]})
        assert (changed.status_code, changed.json()["filter"]) == (200, seen["filter"]), changed.text
        assert (await client.get("abonnement")).json() == [made]
        odd = [{**seen["filter"][0], "rule": "other"}]
        assert (await native.patch(url, json={"version": changed.json()["version"], "filter": odd})).status_code == 422


@pytest.mark.req("ZGW-01", "ZGW-08")
async def test_native_events_on_a_kanaal_must_be_its_notifications(zgw: Zgw) -> None:
    await zgw.create("kanaal", KANAAL)
    await zgw.create("abonnement", zgw.abonnement({"naam": "zaken", "filters": {"bronorganisatie": "517439943"}}))
    base = {"topic": "zaken"}
    cases = [
        ({"payload": notification()}, 201),
        ({"payload": {"order": 7}}, 422),
        ({"payload": notification(kanaal="other")}, 422),
        ({"payload": notification(), "action": "destroy"}, 422),
        ({"payload": notification(kenmerken={"other": "1"})}, 422),
    ]
    async with zgw.front.client("publisher") as native:
        for number, (event, status) in enumerate(cases):
            event_id = f"0198c8a0-0000-7000-8000-00000000000{number}"
            answer = await native.post("/api/v1/events", json={"event_id": event_id, **base, **event})
            assert answer.status_code == status, answer.text
    await zgw.deliver()
    assert [json.loads(body) for body in zgw.received()] == [notification()]


@pytest.mark.req("ZGW-03")
async def test_a_kanaal_is_changed_by_clients_that_may_publish_on_it(zgw: Zgw) -> None:
    made = await zgw.create("kanaal", KANAAL)
    await zgw.operate.zgw_clients.add(ADMIN, "narrow", ["publiceren"], ["documenten"], secret=SECRET)
    async with zgw.client() as client, zgw.client("narrow") as narrow:
        put = await client.put(path_of(made), json={"naam": "zaken", "filters": ["vertrouwelijkheid"]})
        assert put.json() == {**made, "documentatieLink": "", "filters": ["vertrouwelijkheid"]}
        patched = await client.patch(path_of(made), json={"documentatieLink": "https://b.example/#x"})
        assert patched.json()["filters"] == ["vertrouwelijkheid"]
        renamed = await client.patch(path_of(made), json={"naam": "taken"})
        assert renamed.json()["invalidParams"][0]["code"] == "wijzigen-niet-toegelaten"
        for answer in (
            await narrow.put(path_of(made), json=KANAAL),
            await narrow.post("kanaal", json={"naam": "taken"}),
            await narrow.post("notificaties", json=notification()),
        ):
            assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied")


@pytest.mark.req("ZGW-11")
@pytest.mark.threat(1)
async def test_client_reaches_own_abonnementen_only(zgw: Zgw) -> None:
    await zgw.create("kanaal", KANAAL)
    made = await zgw.create("abonnement", zgw.abonnement())
    async with zgw.client("consumer") as other:
        assert (await other.get("abonnement")).json() == []
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            answer = await other.request(method, path_of(made), json=None if method == "GET" else zgw.abonnement())
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    async with zgw.client() as owner:
        assert (await owner.get(path_of(made))).json() == made
    assert "auth" not in made


@pytest.mark.req("ZGW-10")
async def test_a_client_of_one_scope_is_denied_on_the_routes_of_the_other(zgw: Zgw) -> None:
    made = await zgw.create("kanaal", KANAAL)
    async with zgw.client("consumer") as consumer, zgw.client("publisher") as publisher:
        assert (await consumer.get("kanaal")).status_code == 200
        assert (await publisher.get("abonnement")).status_code == 200
        for answer in (
            await consumer.post("kanaal", json=KANAAL),
            await consumer.put(path_of(made), json=KANAAL),
            await consumer.patch(path_of(made), json=KANAAL),
            await consumer.post("notificaties", json=notification()),
            await publisher.post("abonnement", json=zgw.abonnement()),
            await publisher.delete("abonnement/0198c8a0-0000-4000-8000-000000000000"),
        ):
            assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied")


@pytest.mark.req("ZGW-09")
async def test_an_abonnement_is_stored_only_after_its_callback_accepted_a_test(front: Front) -> None:
    async with open_zgw(front, require_rejection=True) as zgw:
        await zgw.create("kanaal", KANAAL)
        zgw.callback.on("POST", "/fails").answer(500, "canary-of-the-callback")
        zgw.callback.on("POST", "/open").answer(204)
        async with zgw.client() as client:
            failed = await client.post("abonnement", json=zgw.abonnement(path="/fails"))
            opened = await client.post("abonnement", json=zgw.abonnement(path="/open"))
            good = await client.post("abonnement", json=zgw.abonnement())
            changed = await client.patch(path_of(good.json()), json={"callbackUrl": zgw.callback.url + "/fails"})
            assert (await client.get("abonnement")).json() == [good.json()]
    codes = [one.json()["invalidParams"][0]["code"] for one in (failed, opened, changed)]
    assert codes == ["invalid-callback-url", "no-auth-on-callback-url", "invalid-callback-url"]
    assert "canary-of-the-callback" not in failed.text + changed.text
    first = zgw.callback.requests[0]
    assert (json.loads(first.body)["kanaal"], first.headers["authorization"]) == ("test", AUTH)


@pytest.mark.req("ZGW-12", "DEC-81")
async def test_a_new_auth_delivers_everything_that_was_waiting(zgw: Zgw) -> None:
    await zgw.create("kanaal", KANAAL)
    made = await zgw.create("abonnement", zgw.abonnement())
    for number in range(3):
        await zgw.create("notificaties", notification(resource=f"status-{number}"))
    expired = zgw.callback.on(when=lambda r: r.headers["authorization"] == AUTH).answer(403)
    await zgw.deliver()
    assert expired.hits >= 3
    assert {status for (status,) in await zgw.front.centre.rows("select status from notifications")} == {"retrying"}
    async with zgw.client() as client:
        patched = await client.patch(path_of(made), json={"auth": "Bearer another"})
    assert patched.status_code == 200, patched.text
    await zgw.deliver()
    assert {status for (status,) in await zgw.front.centre.rows("select status from notifications")} == {"delivered"}


async def test_the_document_is_open_to_all_and_of_version_3_0(zgw: Zgw) -> None:
    async with zgw.bare() as nobody:
        as_yaml = await nobody.get("schema/openapi.yaml")
        as_json = await nobody.get("schema/openapi.json")
        assert (await nobody.get("kanaal")).status_code == 403
    assert (as_yaml.status_code, as_yaml.content) == (200, as_json.content)
    assert as_json.json()["openapi"] == "3.0.3"
    assert as_json.json()["servers"] == [{"url": f"{PUBLIC}/notificaties/api/v1"}]
    assert as_yaml.headers["api-version"] == "1.0.1"


def jwt(expires_at: int) -> str:
    return f"Bearer {token('receiver', SECRET, datetime.fromtimestamp(expires_at, UTC), exp=expires_at)}"


@pytest.mark.req("ZGW-12")
async def test_the_expiry_of_auth_is_shown_before_and_after_and_a_patch_delivers(zgw: Zgw) -> None:
    front = zgw.front
    now = int(front.clock.now().timestamp())
    await zgw.create("kanaal", KANAAL)
    made = await zgw.create("abonnement", zgw.abonnement(auth=jwt(now + 7200)))
    assert await issues(front) == set()
    zgw.callback.on("POST", when=lambda r: r.headers["authorization"] == jwt(now + 7200)).answer(403)
    await zgw.create("notificaties", notification())
    await zgw.deliver()
    [(notification_id,)] = await front.centre.rows("select notification_id from notifications")
    before = await front.watch.notifications.detail(str(notification_id))
    assert "the receiver answered 403" in before.why
    assert "The token that is sent to the receiver expires at" in before.why
    front.clock.advance(7201)
    after = await front.watch.notifications.detail(str(notification_id))
    assert "expired at" in after.why
    assert "set the auth of the subscription again" in after.why
    assert await issues(front) == {IssueCode.RECEIVER_TOKEN}
    async with zgw.client() as client:
        again = await client.patch(path_of(made), json={"auth": jwt(now + 90_000)})
    assert again.status_code == 200, again.text
    await zgw.deliver()
    assert (await front.centre.get(str(notification_id))).status is Status.DELIVERED
    assert await issues(front) == set()


async def issues(front: Front) -> set[IssueCode]:
    """The issues about receivers."""
    front.clock.advance(60)
    found = (await front.watch.overview.now()).issues
    return {one.code for one in found if one.code.startswith("receiver")}


@pytest.mark.req("ZGW-01")
async def test_a_route_sends_a_mail_for_the_notification_that_an_abonnement_gets(zgw: Zgw) -> None:
    front = zgw.front
    await front.centre.add_channel()
    await front.centre.add_list()
    await zgw.create("kanaal", KANAAL)
    await zgw.create("abonnement", zgw.abonnement())
    text = Template(topic="zaken", subject="{{ event.action }} of {{ event.resource }}", body="See the case")
    await front.operate.templates.save(ADMIN, text, None)
    route = EventRoute(route_id="", name="mail", filter=(FilterEntry(topic="zaken"),), list_name="ops")
    await front.operate.routes.add(ADMIN, route)
    await zgw.create("notificaties", notification())
    await zgw.deliver()
    assert len(zgw.received()) == 1
    assert len(front.centre.adapter.sent("ops")) == 1


@pytest.mark.req("DEC-81")
async def test_owner_without_a_client_gets_no_kanaal_automatically(zgw: Zgw) -> None:
    await zgw.create("kanaal", KANAAL)
    async with zgw.front.client("subscriber") as native:
        body = {
            "name": "mine",
            "filter": [{"topic": "zaken"}],
            "settings": {"url": "https://127.0.0.1/in"},
        }
        answer = await native.post("/api/v1/subscriptions", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "filter.topic"), answer.text


@pytest.mark.req("ZGW-10")
async def test_the_served_document_describes_the_api(sqlite_url: str, clock: ManualClock, tmp_path: Path) -> None:
    async with open_front(sqlite_url, clock) as front, open_zgw(front) as zgw:
        await zgw.create("kanaal", KANAAL)
        for client in ("publisher", "consumer"):
            await try_zgw(zgw, client, tmp_path, "--phases", "fuzzing,stateful", "--max-examples", "3")


@pytest.mark.req("ZGW-12", "DEC-68")
async def test_the_pages_show_client_filters_and_token_expiry(zgw: Zgw) -> None:
    front = zgw.front
    now = int(front.clock.now().timestamp())
    await zgw.create("kanaal", KANAAL)
    filters = {"zaaktype": "https://catalogi.example.nl/1", "#actie": "create"}
    await zgw.create("abonnement", zgw.abonnement({"naam": "zaken", "filters": filters}, auth=jwt(now + 7200)))
    [found] = await zgw.operate.subscriptions.find()
    async with visiting(front, "viewer") as visitor:
        assert "zaken kanaal" in await visitor.look("/topics")
        assert KANAAL["documentatieLink"] in await visitor.look("/topics/zaken")
        page = await visitor.look(f"/subscriptions/{found.subscription_id}")
        assert "abonnement of the ZGW client both" in page
        assert '"zaaktype": "https://catalogi.example.nl/1", "#actie": "create"' in page
        assert "token expires" in page
    front.clock.advance(7201)
    async with visiting(front, "viewer") as visitor:
        assert "token expired" in await visitor.look("/subscriptions")


async def test_a_disabled_abonnement_is_active_again_after_a_change_that_its_callback_accepts(zgw: Zgw) -> None:
    await zgw.create("kanaal", KANAAL)
    made = await zgw.create("abonnement", zgw.abonnement())
    zgw.callback.on("POST", "/in", when=lambda r: b'"test"' not in r.body).answer(410).times(1)
    await zgw.create("notificaties", notification())
    await zgw.deliver()
    assert [one.state.value for one in await zgw.operate.subscriptions.find()] == ["disabled"]
    async with zgw.client() as client:
        assert (await client.patch(path_of(made), json={"auth": AUTH})).status_code == 200
    assert [one.state.value for one in await zgw.operate.subscriptions.find()] == ["active"]
    await zgw.create("notificaties", notification(resource="another"))
    await zgw.deliver()
    assert b'"another"' in zgw.received()[-1]

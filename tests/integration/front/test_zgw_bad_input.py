"""Invalid requests to the ZGW API: the standard's error format, the field named, nothing half-written."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from fieldpost.central.operate.receiver_test import RATE, take_test
from fieldpost.core.errors import Conflict
from fieldpost.core.secret import Secret
from fieldpost.core.zgw.token import sign
from support.front import Front
from support.visitor import visiting
from support.zgw import AUTH, KANAAL, PUBLIC, SECRET, Zgw, notification, open_zgw, token

UNKNOWN = "0198c8a0-0000-4000-8000-000000000000"


@pytest.fixture
async def zgw(front: Front) -> AsyncIterator[Zgw]:
    async with open_zgw(front) as opened:
        yield opened


def check_fault(answer: Any, status: int, code: str | None = None) -> dict[str, Any]:
    """The error in the standard's format."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["api-version"] == "1.0.1"
    fault = dict(answer.json())
    assert {"type", "code", "title", "status", "detail", "instance"} <= fault.keys()
    assert fault["status"] == status
    assert ("invalidParams" in fault) == (status == 400)
    if code is not None:
        assert code == (fault["invalidParams"][0]["code"] if status == 400 else fault["code"]), fault
    return fault


def part(value: object) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def made(claims: object, **header: Any) -> str:
    signed = f"{part({'typ': 'JWT', 'alg': 'HS256', **header})}.{part(claims)}"
    return f"{signed}.{part(sign(signed.encode(), Secret(SECRET)))}"


@pytest.mark.req("ZGW-10")
@pytest.mark.bad_input(53)
@pytest.mark.threat(14)
async def test_every_refused_token_is_403_with_a_code_and_audited(zgw: Zgw) -> None:
    now = zgw.front.clock.now()
    iat = int(now.timestamp())
    good = {"client_id": "both", "iat": iat}
    tokens = {
        "alg none": (made(good, alg="none"), "jwt-algorithm"),
        "HS512": (made(good, alg="HS512"), "jwt-algorithm"),
        "RS256": (made(good, alg="RS256"), "jwt-algorithm"),
        "no client_id": (made({"iat": iat}), "missing-client-identifier"),
        "no iat": (made({"client_id": "both"}), "jwt-missing-iat"),
        "iat text": (made({**good, "iat": str(iat)}), "jwt-missing-iat"),
        "iat float": (made({**good, "iat": iat + 0.5}), "jwt-missing-iat"),
        "iat 1970": (made({**good, "iat": 0}), "jwt-expired"),
        "iat tomorrow": (made({**good, "iat": iat + 86400}), "jwt-not-yet-valid"),
        "expired": (made({**good, "exp": iat - 1}), "jwt-expired"),
        "not an object": (made([good]), "jwt-decode-error"),
        "100 kB": (made({**good, "user_id": "x" * 100_000}), "jwt-decode-error"),
        "bad base64": ("ab!.cd.ef", "jwt-decode-error"),
        "bad base64 in the signature": (f"{made(good)}!", "jwt-decode-error"),
        "wrong signature": (token("both", "another", now), "jwt-invalid"),
        "unknown client": (token("nobody", SECRET, now), "jwt-invalid"),
    }
    for name, (text, code) in tokens.items():
        async with zgw.bare({"Authorization": f"Bearer {text}"}) as caller:
            fault = check_fault(await caller.get("kanaal"), 403)
        assert fault["code"] == code, name
    async with zgw.bare() as caller:
        for headers in ({}, {"Authorization": ""}, {"Authorization": "Bearer "}, {"Authorization": "Basic YTpi"}):
            check_fault(await caller.get("kanaal", headers=headers), 403, "not_authenticated")
        two = [("Authorization", f"Bearer {made(good)}"), ("Authorization", f"Bearer {made(good)}")]
        check_fault(await caller.get("kanaal", headers=two), 400)
    found = await zgw.front.centre.rows("select actor, error_message from audit where kind = 'inbound_auth_failure'")
    noted = {str(actor): str(error) for actor, error in found}
    assert "unknown-client" in noted["nobody"]
    assert "wrong-signature" in noted["both"]


KANALEN: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"naam": "a/b"}, "naam", "invalid"),
    ({"naam": "a b"}, "naam", "invalid"),
    ({"naam": "a\nb"}, "naam", "invalid"),
    ({"naam": "a\x00b"}, "naam", "invalid"),
    ({"naam": "a\x7f"}, "naam", "invalid"),
    ({"naam": "é"}, "naam", "invalid"),
    ({"naam": "-a"}, "naam", "invalid"),
    ({"naam": ".a"}, "naam", "invalid"),
    ({"naam": "fieldpost.own"}, "naam", "invalid"),
    ({"naam": "a" * 51}, "naam", "max_length"),
    ({"naam": ""}, "naam", "blank"),
    ({"naam": None}, "naam", "null"),
    ({"naam": 7}, "naam", "invalid"),
    ({"naam": "zaken"}, "naam", "unique"),
    ({"documentatieLink": "ftp://a.example"}, "documentatieLink", "bad-url"),
    ({"documentatieLink": "https://a.example/" + "a" * 200}, "documentatieLink", "max_length"),
    ({"filters": "zaaktype"}, "filters", "not_a_list"),
    ({"filters": ["a"] * 101}, "filters", "max_length"),
    ({"filters": ["a b"]}, "filters.0", "invalid"),
    ({"filters": [1]}, "filters.0", "invalid"),
)


async def test_invalid_kanalen_are_rejected_by_name(zgw: Zgw) -> None:
    await zgw.create("kanaal", KANAAL)
    async with zgw.client() as client:
        for wrong, name, code in KANALEN:
            fault = check_fault(await client.post("kanaal", json={"naam": "taken", **wrong}), 400, code)
            assert fault["invalidParams"][0]["name"] == name
        [kanaal] = (await client.get("kanaal")).json()
        path = f"kanaal/{kanaal['url'].rpartition('/')[2]}"
        for method, body in (("PUT", {**KANAAL, "naam": "taken"}), ("PATCH", {"naam": "taken"})):
            fault = check_fault(await client.request(method, path, json=body), 400, "wijzigen-niet-toegelaten")
            assert fault["invalidParams"][0]["name"] == "naam"
        check_fault(await client.put(path, json={"filters": []}), 400, "required")
        fault = check_fault(await client.post("kanaal", json={"filters": 1}), 400)
        assert [one["name"] for one in fault["invalidParams"]] == ["naam", "filters"]
        assert (await client.get("kanaal")).json() == [kanaal]


ABONNEMENTEN: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"kanalen": []}, "kanalen", "invalid"),
    ({"kanalen": "zaken"}, "kanalen", "not_a_list"),
    ({"kanalen": ["zaken"]}, "kanalen.0", "invalid"),
    ({"kanalen": [{"naam": "unknown"}]}, "kanalen.0.naam", "kanaal_naam"),
    ({"kanalen": [{"filters": {}}]}, "kanalen.0.naam", "required"),
    (
        {"kanalen": [{"naam": "zaken", "filters": {"other": "1"}}]},
        "kanalen.0.filters",
        "inconsistent-abonnement-filters",
    ),
    ({"kanalen": [{"naam": "zaken", "filters": {"zaaktype": ""}}]}, "kanalen.0.filters.zaaktype", "blank"),
    ({"kanalen": [{"naam": "zaken", "filters": {"zaaktype": "x" * 1001}}]}, "kanalen.0.filters.zaaktype", "max_length"),
    ({"kanalen": [{"naam": "zaken", "filters": {"zaaktype": ["x"]}}]}, "kanalen.0.filters.zaaktype", "invalid"),
    ({"kanalen": [{"naam": "zaken", "filters": ["x"]}]}, "kanalen.0.filters", "not_a_dict"),
    ({"kanalen": [{"naam": "zaken", "filters": {"\x00": "x"}}]}, "kanalen.0.filters.\ufffd", "invalid"),
    ({"callbackUrl": "https://a.example/" + "a" * 3000}, "callbackUrl", "max_length"),
    ({"callbackUrl": ""}, "callbackUrl", "blank"),
    ({"callbackUrl": 7}, "callbackUrl", "invalid"),
    ({"auth": "Bearer a\r\nX-Evil: 1"}, "auth", "invalid"),
    ({"auth": "Bearer a\nHost: evil"}, "auth", "invalid"),
    ({"auth": "Bearer \u0105"}, "auth", "invalid"),
    ({"auth": "x" * 9000}, "auth", "max_length"),
    ({"auth": ""}, "auth", "blank"),
    ({"auth": None}, "auth", "null"),
)


CALLBACKS = (
    *("http://10.0.0.1/in", "http://192.168.1.1/", "http://169.254.169.254/latest", "http://[fd00:ec2::254]/"),
    *("file:///etc/passwd", "gopher://example.org/", "javascript:alert(1)", "https://", "http:///in", "//example.org/"),
    *("https://a:b@example.org/", "https://a@example.org/", "https://example.org/#x", "https://example.org:99999/"),
    # 127.0.0.1 is allowed in these tests, 127.0.0.2 is not.
    *("http://127.2/", "http://0x7f.2/", "http://2130706434/", "http://0177.0.0.2/", "http://[::]/", "http://0/"),
    *("http://\u2460\u2461\u2466.\u2461/", "http://127.0.0.2/"),
    *("http://100.64.0.1/", "http://192.0.0.8/", "http://192.88.99.1/", "http://224.0.0.1/", "http://[::127.0.0.1]/"),
    *("http://[::ffff:100.64.0.1]/", "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/", "http://[fec0::1]/"),
    *("http://[3fff::1]/", "http://[5f00::1]/"),
    *("https://exam\tple.org/", "https://example.org/\n", " https://example.org/"),
)


@pytest.mark.bad_input(31, 32, 33, 34, 35)
@pytest.mark.threat(15)
async def test_invalid_abonnementen_are_rejected_and_their_callbacks_never_called(zgw: Zgw) -> None:
    await zgw.create("kanaal", KANAAL)
    async with zgw.client() as client:
        for wrong, name, code in ABONNEMENTEN:
            fault = check_fault(await client.post("abonnement", json=zgw.abonnement(**wrong)), 400, code)
            assert fault["invalidParams"][0]["name"] == name, wrong
        for url in CALLBACKS:
            answer = await client.post("abonnement", json=zgw.abonnement(callbackUrl=url))
            [param] = check_fault(answer, 400, "invalid-callback-url")["invalidParams"]
            assert param["name"] == "callbackUrl", url
            assert "did not answer" not in param["reason"], f"a test was sent to {url}"
        assert (await client.get("abonnement")).json() == []
    assert zgw.callback.connection_count == 0


@pytest.mark.req("ZGW-09")
@pytest.mark.threat(18)
async def test_callbacks_that_misbehave_are_rejected_within_the_deadline(zgw: Zgw) -> None:
    await zgw.create("kanaal", KANAAL)
    zgw.adapter.deadline_s = 0.5
    zgw.callback.on(path="/redirects").redirect(f"{zgw.callback.url}/in")
    zgw.callback.on(path="/hangs").hang()
    zgw.callback.on(path="/drips").answer(200, b"x" * 10_000).drip(0.05)
    for path, status in (("/huge", "200 OK"), ("/huge-failure", "500 No")):
        head = f"HTTP/1.1 {status}\r\nContent-Length: 5000000000\r\n\r\n".encode()
        zgw.callback.on(path=path).raw(head + b"x" * 200_000).then_hang()
    async with zgw.client() as client:
        for path in ("/redirects", "/hangs", "/drips", "/huge-failure"):
            answer = await client.post("abonnement", json=zgw.abonnement(path=path))
            check_fault(answer, 400, "invalid-callback-url")
        assert (await client.get("abonnement")).json() == []
        # A body after 2xx is cut, not read to the end.
        zgw.adapter.deadline_s = 20
        assert (await client.post("abonnement", json=zgw.abonnement(path="/huge"))).status_code == 201
    assert not [one for one in zgw.callback.requests if one.path == "/in"], "a redirect was followed"


NOTIFICATIONS: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"kanaal": "unknown"}, "kanaal", "message_kanaal"),
    ({"kanaal": "x" * 51}, "kanaal", "max_length"),
    ({"kanaal": None}, "kanaal", "required"),
    ({"hoofdObject": "urn:a"}, "hoofdObject", "bad-url"),
    ({"resourceUrl": "nothing"}, "resourceUrl", "bad-url"),
    ({"resource": "x" * 101}, "resource", "max_length"),
    ({"actie": 7}, "actie", "invalid"),
    ({"source": "x" * 101}, "source", "max_length"),
    ({"aanmaakdatum": "yesterday"}, "aanmaakdatum", "invalid"),
    ({"aanmaakdatum": "2026-11-15"}, "aanmaakdatum", "invalid"),
    ({"aanmaakdatum": "2026-02-30T08:00:00Z"}, "aanmaakdatum", "invalid"),
    ({"aanmaakdatum": 1794700800}, "aanmaakdatum", "invalid"),
    ({"aanmaakdatum": None}, "aanmaakdatum", "required"),
    ({"kenmerken": {"zaaktype": None}}, "kenmerken.zaaktype", "null"),
    ({"kenmerken": {"zaaktype": {"a": 1}}}, "kenmerken.zaaktype", "invalid"),
    ({"kenmerken": {"zaaktype": ["1"]}}, "kenmerken.zaaktype", "invalid"),
    ({"kenmerken": {"zaaktype": "x" * 1001}}, "kenmerken.zaaktype", "max_length"),
    ({"kenmerken": {"x" * 101: "1"}}, f"kenmerken.{'x' * 100}", "max_length"),
    ({"kenmerken": {"a\nb": "1"}}, "kenmerken.a\ufffdb", "invalid"),
    ({"kenmerken": {f"k{n}": "1" for n in range(101)}}, "kenmerken", "max_length"),
    ({"kenmerken": {"other": "1"}}, "kenmerken", "kenmerken_inconsistent"),
    ({"kenmerken": ["zaaktype"]}, "kenmerken", "not_a_dict"),
)


@pytest.mark.req("ZGW-08")
async def test_invalid_notifications_are_rejected_by_name(zgw: Zgw) -> None:
    await zgw.create("kanaal", KANAAL)
    async with zgw.client() as client:
        for wrong, name, code in NOTIFICATIONS:
            fault = check_fault(await client.post("notificaties", json=notification(**wrong)), 400, code)
            assert fault["invalidParams"][0]["name"] == name, wrong
        ahead = zgw.front.clock.now().timestamp() + 360
        late = datetime.fromtimestamp(ahead, UTC).isoformat()
        answer = await client.post("notificaties", json=notification(aanmaakdatum=late))
        check_fault(answer, 400, "future_not_allowed")
    assert await zgw.front.centre.rows("select event_id from events") == []


async def test_unusual_notifications_are_accepted(zgw: Zgw) -> None:
    await zgw.create("kanaal", KANAAL)
    await zgw.create("abonnement", zgw.abonnement({"naam": "zaken", "filters": {"bron_organisatie": "7"}}))
    for more in (
        {"aanmaakdatum": "2025-06-01T12:00:00"},
        {"kenmerken": {"bronorganisatie": 7, "zaaktype": ""}},
        {"kenmerken": {}},
        {"source": "open-zaak", "extra": {"deep": [1]}},
    ):
        await zgw.create("notificaties", notification(**more))
    # A lone surrogate, escaped: no UTF-8 could say it, and a field that central does not read is passed on as it is.
    odd = json.dumps(notification(kenmerken={}, extra="\ud800")).encode()
    async with zgw.client() as client:
        answer = await client.post("notificaties", content=odd, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.content) == (201, odd)
    await zgw.deliver()
    assert len(zgw.received()) == 3, "the number as text, and those without kenmerken"
    assert odd in zgw.received()
    found = await zgw.front.centre.rows("select event_id from events where payload like '%ud800%'")
    async with visiting(zgw.front, "admin") as visitor:
        assert "ud800" in await visitor.look(f"/events/{found[0][0]}")
    async with zgw.front.client("admin") as native:
        events = (await native.get("/api/v1/events")).json()["events"]
    moments = {one["occurred_at"] for one in events}
    assert "2025-06-01T12:00:00.000000Z" in moments, "a time without a zone is UTC"


@pytest.mark.bad_input(13, 14, 15, 42)
async def test_bodies_that_are_not_plain_json_are_rejected(zgw: Zgw) -> None:
    await zgw.create("kanaal", KANAAL)
    text = json.dumps(notification())
    bodies = [
        (text[:-1].encode() + b', "actie": "destroy"}', 400),
        (text.replace('"zaaktype": ', '"\\ud800": ').encode(), 400),
        (text.replace('"create"', "NaN").encode(), 400),
        (text.replace('"create"', "1e999").encode(), 400),
        (text.replace('"create"', "1" * 5000).encode(), 400),
        (b"[" * 100_000 + b"]" * 100_000, 400),
        (text.encode("utf-16"), 400),
        (b"\xef\xbb\xbf" + text.encode(), 400),
        (text.replace("create", "\xff").encode("latin-1"), 400),
        (b"", 400),
        (b"7", 400),
        (b"{", 400),
        (text.encode() + b" " * 300 * 1024, 413),
    ]
    async with zgw.client() as client:
        for body, status in bodies:
            answer = await client.post("notificaties", content=body, headers={"Content-Type": "application/json"})
            check_fault(answer, status)
        twice = text.replace('"zaaktype": ', '"zaaktype": "1", "zaaktype": ')
        answer = await client.post("notificaties", content=twice, headers={"Content-Type": "application/json"})
        assert check_fault(answer, 400, "duplicate_key")["invalidParams"][0]["name"] == "zaaktype"
        for content_type in ("text/plain", "application/json; charset=utf-7", "application/x-www-form-urlencoded"):
            answer = await client.post("notificaties", content=text, headers={"Content-Type": content_type})
            check_fault(answer, 415, "unsupported_media_type")
    assert await zgw.front.centre.rows("select event_id from events") == []


@pytest.mark.bad_input(16)
async def test_compressed_bodies_are_rejected(zgw: Zgw) -> None:
    async with zgw.client() as client:
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        check_fault(await client.post("notificaties", content=b"\x1f\x8b" * 100, headers=headers), 400)


async def test_unknown_paths_methods_and_parameters(zgw: Zgw) -> None:
    async with zgw.client() as client:
        check_fault(await client.get("kanalen"), 404, "not_found")
        check_fault(await client.get("kanaal/"), 404, "not_found")
        check_fault(await client.get("kanaal/not-a-uuid"), 404, "not_found")
        check_fault(await client.get(f"kanaal/{UNKNOWN}"), 404, "not_found")
        check_fault(await client.get(f"abonnement/{UNKNOWN.upper()}"), 404, "not_found")
        check_fault(await client.delete(f"kanaal/{UNKNOWN}"), 405, "method_not_allowed")
        answer = await client.get("notificaties")
        check_fault(answer, 405)
        assert answer.headers["allow"] == "POST"
        overridden = await client.post(f"kanaal/{UNKNOWN}", headers={"X-HTTP-Method-Override": "PUT"})
        check_fault(overridden, 405)
        check_fault(await client.get("kanaal", params={"name": "x"}), 400, "unknown-parameters")
        check_fault(await client.get("kanaal?naam=a&naam=b"), 400, "invalid")
        check_fault(await client.get("schema/openapi.yaml", params={"format": "yaml"}), 400, "unknown-parameters")
        for method, path in (
            ("GET", "abonnement"),
            ("POST", "kanaal"),
            ("POST", "notificaties"),
            ("POST", "abonnement"),
        ):
            answer = await client.request(method, path, params={"page": "1"})
            fault = check_fault(answer, 400, "unknown-parameters")
            assert fault["invalidParams"][0]["name"] == "page"


@pytest.mark.req("ZGW-13")
async def test_the_host_header_has_no_influence_on_urls(zgw: Zgw) -> None:
    async with zgw.client() as client:
        answer = await client.post("kanaal", json=KANAAL, headers={"Host": "evil.example"})
    assert answer.json()["url"].startswith(f"{PUBLIC}/notificaties/api/v1/kanaal/")


async def test_an_api_that_is_off_does_not_exist(front: Front) -> None:
    async with front.client("admin") as client:
        assert (await client.get("/notificaties/api/v1/kanaal")).status_code == 404


async def test_canaries_in_auth_and_secrets_are_found_nowhere(zgw: Zgw) -> None:
    await zgw.create("kanaal", KANAAL)
    made = await zgw.create("abonnement", zgw.abonnement())
    zgw.callback.on(path="/in").answer(500, AUTH)
    await zgw.create("notificaties", notification())
    await zgw.deliver()
    async with zgw.client() as client, zgw.front.client("admin") as native:
        shown = [(await client.get("abonnement")).text, json.dumps(made)]
        for path in ("subscriptions", "audit", "notifications", "zgw-clients", "topics", "events"):
            shown.append((await native.get(f"/api/v1/{path}")).text)
    [abonnement] = await zgw.operate.subscriptions.find()
    [(notification_id,)] = await zgw.front.centre.rows("select notification_id from notifications")
    async with visiting(zgw.front, "admin") as visitor:
        for page in (
            *("/subscriptions", "/zgw-clients", "/audit", "/topics/zaken", "/"),
            *(f"/subscriptions/{abonnement.subscription_id}", f"/notifications/{notification_id}"),
        ):
            await visitor.look(page)
            shown.append(visitor.page.text)
    for table in ("subscriptions", "zgw_clients", "audit", "attempts", "notifications", "events"):
        shown.append(repr(await zgw.front.centre.rows(f"select * from {table}")))
    for canary in ("canary-of-auth", SECRET):
        assert canary not in "".join(shown)


@pytest.mark.threat(17)
async def test_tests_of_callbacks_have_a_rate(zgw: Zgw) -> None:
    await zgw.create("kanaal", KANAAL)
    store = zgw.front.centre.store
    for _ in range(RATE.count):
        with suppress(Conflict):
            await store.write(take_test, "both", now=store.now())
    async with zgw.client() as client:
        answer = await client.post("abonnement", json=zgw.abonnement())
    check_fault(answer, 429, "throttled")
    assert int(answer.headers["retry-after"]) > 0
    assert zgw.callback.connection_count == 0

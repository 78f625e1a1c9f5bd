"""Secrets of channels over the API: they go in, are kept sealed, and come out nowhere; rotation; health; the test."""

import base64
import json
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from sqlalchemy import Connection, text

from fieldpost.central.operate.channels import ChannelActions
from fieldpost.central.operate.secrets import Secrets, _reseal
from fieldpost.central.secrets.keyring import Keyring, SecretKey, SecretOwner, key_id_of
from fieldpost.central.store.notifications import lists
from fieldpost.core.errors import Conflict
from fieldpost.core.secret import Secret
from fieldpost.testing import MailServer
from support.front import ADMIN, Front

CANARY = "kanarie-0815-geheim"
MAIL = {
    "host": "127.0.0.1",
    "port": 2525,
    "tls": "none",
    "from_address": "alerts@plant.example",
    "auth": "basic",
    "username": "alerts@plant.example",
}
NEW_KEY = SecretKey.of(b"n" * 32)


async def add(client: httpx2.AsyncClient, name: str = "mail", **body: Any) -> dict[str, Any]:
    new = {"name": name, "type": "email", "settings": MAIL, "secrets": {"password": CANARY}, "is_default": True}
    answer = await client.post("/api/v1/channels", json=new | body)
    assert answer.status_code == 201, answer.text
    assert CANARY not in answer.text
    return answer.json()


async def password_of(front: Front, name: str = "mail") -> str | None:
    """What the adapter would be handed."""
    channel = await front.operate.channels.get(name)
    password = front.centre.keyring.open_owner(channel).settings.get("password")
    return password.reveal() if isinstance(password, Secret) else None


@pytest.mark.dec("DEC-34")
@pytest.mark.bad_input(28)
async def test_stored_secret_is_shown_only_as_set(front: Front) -> None:
    async with front.client("admin") as client:
        added = await add(client)
        assert added["secrets"] == {"password": "set"}
        assert "password" not in added["settings"]
        for path in ("/api/v1/channels", "/api/v1/channels/mail", "/api/v1/secrets", "/api/v1/health"):
            assert CANARY not in (await client.get(path)).text
        assert (await client.get("/api/v1/channels/mail")).json() == added
    assert await password_of(front) == CANARY


@pytest.mark.bad_input(28)
async def test_secret_is_kept_unless_replaced_or_cleared(front: Front) -> None:
    async with front.client("admin") as client:
        await add(client)
        for version, secrets in ((1, {}), (2, {"password": ""})):
            body = {"version": version, "settings": {"max_connections": 4 + version}, "secrets": secrets}
            changed = await client.patch("/api/v1/channels/mail", json=body)
            assert (changed.status_code, changed.json()["secrets"]) == (200, {"password": "set"})
            assert await password_of(front) == CANARY
        await client.patch("/api/v1/channels/mail", json={"version": 3, "secrets": {"password": "another"}})
        assert await password_of(front) == "another"
        kept = await client.patch("/api/v1/channels/mail", json={"version": 4, "secrets": {"password": None}})
        assert (kept.status_code, kept.json()["field"]) == (422, "secrets.password"), "basic needs one"
        body = {"version": 4, "settings": {"auth": None, "username": None}, "secrets": {"password": None}}
        cleared = await client.patch("/api/v1/channels/mail", json=body)
        assert cleared.json()["secrets"] == {}
        assert await password_of(front) is None


@pytest.mark.threat(24)
@pytest.mark.dec("DEC-34")
async def test_secret_is_sealed_in_the_table(front: Front) -> None:
    async with front.client("admin") as client:
        await add(client)
    row = await front.centre.store.read(channel_row)
    assert CANARY not in str(row)
    assert key_id_of(row["secrets"]["password"]) == front.centre.keyring.key_ids[0]


@pytest.mark.bad_input(28)
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"settings": MAIL | {"password": CANARY}, "secrets": {}}, "settings.password"),
        ({"secrets": {"host": CANARY}}, "secrets.host"),
        ({"secrets": {"password": [CANARY]}}, "secrets.password"),
        ({"secrets": {"password": 815}}, "secrets.password"),
        ({"secrets": {"password": CANARY + "\x00"}}, "secrets.password"),
        ({"secrets": {}}, "secrets.password"),
        ({"secrets": CANARY}, "secrets"),
        ({"secrets": {"password": CANARY}, CANARY[:4]: 1}, CANARY[:4]),
    ],
)
async def test_rejected_secret_is_not_repeated(front: Front, change: dict[str, Any], field: str) -> None:
    async with front.client("admin") as client:
        new = {"name": "mail", "type": "email", "settings": MAIL, "secrets": {"password": CANARY}}
        answer = await client.post("/api/v1/channels", json=new | change)
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    assert CANARY not in answer.text


@pytest.mark.bad_input(26, 27, 29)
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("port", 0),
        ("port", 70000),
        ("port", "25"),
        ("host", "smtp://mail.example"),
        ("host", "mail example"),
        ("tls", "startls"),
        ("tls", "None"),
        ("from_address", "a@b.example\r\nBcc: x@y.example"),
    ],
)
async def test_a_setting_that_breaks_a_rule_is_refused_when_it_is_saved(
    front: Front, setting: str, value: object
) -> None:
    async with front.client("admin") as client:
        before = await add(client)
        body = {"version": 1, "settings": {setting: value}}
        answer = await client.patch("/api/v1/channels/mail", json=body)
        assert (answer.status_code, answer.json()["field"]) == (422, f"settings.{setting}")
        new = {"name": "two", "type": "email", "settings": MAIL | {setting: value}, "secrets": {"password": CANARY}}
        assert (await client.post("/api/v1/channels", json=new)).status_code == 422
        assert (await client.get("/api/v1/channels/mail")).json() == before


@pytest.mark.bad_input(26, 27, 29)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_retries", 0),
        ("max_retries", -1),
        ("max_retries", 10**9),
        ("max_retries", "3"),
        ("retry_delay_s", "5m"),
        ("retry_delay_s", 0),
        ("retry_delay_s", 1e9),
    ],
)
async def test_a_retry_field_out_of_range_is_refused_when_it_is_saved(front: Front, field: str, value: object) -> None:
    async with front.client("admin") as client:
        before = await add(client)
        answer = await client.patch("/api/v1/channels/mail", json={"version": 1, field: value})
        assert (answer.status_code, answer.json()["field"]) == (422, field)
        new = {"name": "two", "type": "email", "settings": MAIL, "secrets": {"password": CANARY}, field: value}
        assert (await client.post("/api/v1/channels", json=new)).status_code == 422
        assert (await client.get("/api/v1/channels/mail")).json() == before


@pytest.mark.bad_input(29)
async def test_sender_other_than_the_login_causes_a_warning(front: Front) -> None:
    async with front.client("admin") as client:
        assert (await add(client))["warnings"] == []
        body = {"version": 1, "settings": {"from_address": "ops@plant.example"}}
        changed = (await client.patch("/api/v1/channels/mail", json=body)).json()
    assert "ops@plant.example" in changed["warnings"][0]
    assert "alerts@plant.example" in changed["warnings"][0]


async def test_another_channel_can_be_made_the_default_and_have_a_policy(front: Front) -> None:
    async with front.client("admin") as client:
        await add(client)
        await add(client, "two", is_default=False)
        body = {"version": 1, "is_default": True, "retry": "schedule:1m,5m"}
        changed = (await client.patch("/api/v1/channels/two", json=body)).json()
        assert (changed["is_default"], changed["retry"]) == (True, "schedule:60s,300s")
        found = {one["name"]: one for one in (await client.get("/api/v1/channels")).json()["channels"]}
        assert {name: one["is_default"] for name, one in found.items()} == {"mail": False, "two": True}
        back = (await client.patch("/api/v1/channels/two", json={"version": 2, "retry": None})).json()
        assert (back["retry"], back["is_default"]) == (None, True)


async def test_a_default_that_lists_rely_on_is_not_removed(front: Front) -> None:
    async with front.client("admin") as client:
        await add(client)
        await client.post("/api/v1/lists", json={"name": "ops", "targets": ["a@example.org"]})
        answer = await client.delete("/api/v1/channels/mail")
        assert (answer.status_code, answer.json()["code"]) == (409, "channel.in_use")
        await add(client, "two", is_default=True)
        assert (await client.delete("/api/v1/channels/mail")).status_code == 204


# -- keys --------------------------------------------------------------------------------------------------------------


def with_ring(front: Front, *keys: SecretKey) -> tuple[ChannelActions, Secrets, Keyring]:
    """The same store as a node sees it that was started with these keys."""
    ring = Keyring(keys)
    store, clock = front.centre.store, front.clock
    return ChannelActions(store, front.operate.channels._adapters, clock, ring), Secrets(store, clock, ring), ring


@pytest.mark.fault(67)
async def test_a_node_without_the_key_shows_which_secrets_it_cannot_read(front: Front) -> None:
    async with front.client("admin") as client:
        await add(client)
        assert "secrets.unreadable" not in (await client.get("/api/v1/health")).text
    channels, secrets, ring = with_ring(front, NEW_KEY)
    assert channels.shown_secrets(await channels.get("mail")) == {"password": "unreadable"}
    (trouble,) = (await secrets.state()).problems
    assert trouble.startswith("the password of channel 'mail' cannot be read")
    changed = await channels.change(ADMIN, "mail", {"max_connections": 7}, 1)
    assert changed.settings["max_connections"] == 7, "what is no secret can be changed all the same"
    await channels.change(ADMIN, "mail", {}, 2, secrets={"password": "given anew"})
    assert (await secrets.state()).problems == ()
    assert ring.open_owner(await channels.get("mail")).settings["password"] == Secret("given anew")


@pytest.mark.threat(24)
@pytest.mark.dec("DEC-34")
async def test_rotation_seals_everything_under_the_new_key_and_the_old_one_can_go(front: Front) -> None:
    async with front.client("admin") as client:
        for number in range(120):
            await add(client, f"mail{number}", is_default=False, secrets={"password": f"{CANARY}{number}"})
    old = SecretKey.of(bytes(32))
    assert (await with_ring(front, old)[1].state()).counts == {old.key_id: 120}
    channels, secrets, _ = with_ring(front, NEW_KEY, old)
    rotated = await secrets.rotate(ADMIN)
    assert (rotated.key_id, rotated.count, rotated.problems) == (NEW_KEY.key_id, 120, ())
    assert (await secrets.rotate(ADMIN)).count == 0
    channels, secrets, ring = with_ring(front, NEW_KEY)
    assert (await secrets.state()).counts == {NEW_KEY.key_id: 120}
    found = await channels.all()
    assert {ring.open_owner(c).settings["password"] for c in found} == {Secret(f"{CANARY}{n}") for n in range(120)}
    assert {c.version for c in found} == {1}


async def test_interrupted_rotation_continues(front: Front) -> None:
    async with front.client("admin") as client:
        for number in range(60):
            await add(client, f"mail{number:03}", is_default=False)
    old = SecretKey.of(bytes(32))
    _, secrets, ring = with_ring(front, NEW_KEY, old)
    await front.centre.store.write(_reseal, ring, NEW_KEY.key_id, "channel", "")  # one batch, and then the end
    assert (await secrets.state()).counts == {NEW_KEY.key_id: 50, old.key_id: 10}
    assert (await secrets.rotate(ADMIN)).count == 10


async def test_rotation_skips_unreadable_secrets_and_reports_them(front: Front) -> None:
    async with front.client("admin") as client:
        await add(client)
        lost = Keyring([SecretKey.of(b"l" * 32)])
        sealed = lost.seal(Secret("x"), SecretOwner("channel", "mail", "mail"), "password", bytes(12))
        channel = await front.operate.channels.get("mail")
        await front.centre.store.write(
            lists.change_channel, replace(channel, secrets={"password": sealed}), front.clock.now()
        )
        answer = (await client.post("/api/v1/secrets/rotate")).json()
        assert (answer["count"], len(answer["problems"])) == (0, 1)
        assert (await client.get("/api/v1/channels/mail")).json()["secrets"] == {"password": "unreadable"}
        health = (await client.get("/api/v1/health")).json()
        assert (health["status"], health["issues"][0]["code"]) == ("error", "secrets.unreadable")


async def test_without_a_key_secrets_are_rejected_and_the_rest_works(front: Front) -> None:
    channels, _, _ = with_ring(front)
    with pytest.raises(Conflict) as refused:
        await channels.add(ADMIN, "mail", "email", MAIL, {"password": CANARY})
    assert refused.value.code == "secret.no_key"
    plain = {name: value for name, value in MAIL.items() if name not in ("auth", "username")}
    assert (await channels.add(ADMIN, "mail", "email", plain)).secrets == {}


# -- the test of a channel ---------------------------------------------------------------------------------------------


async def test_test_sends_a_mail_and_shows_the_conversation_without_secrets(front: Front) -> None:
    async with MailServer(auth=lambda given: given.secret == CANARY) as server, front.client("admin") as client:
        await add(client, settings=MAIL | {"port": server.port})
        answer = await client.post("/api/v1/channels/mail/test", json={"to": "Ann@Example.org"})
        (mail,) = server.mails
    tested = answer.json()
    assert (tested["outcome"], tested["error"]) == ("delivered", None)
    assert mail.recipients == ("Ann@example.org",)
    assert [line for line in tested["transcript"] if line.startswith("> MAIL FROM:<alerts@plant.example>")]
    assert [line for line in tested["transcript"] if line.startswith("< 250")]
    assert CANARY not in answer.text
    acts = await front.centre.store.read(audited_tests)
    ((name, actor, extra),) = acts
    assert (name, actor, extra["to"]) == ("mail", ADMIN.name, "Ann@example.org")


async def test_failed_test_shows_the_reply_of_the_server(front: Front) -> None:
    async with MailServer(auth=lambda given: False) as server, front.client("admin") as client:
        await add(client, settings=MAIL | {"port": server.port})
        tested = (await client.post("/api/v1/channels/mail/test", json={"to": "a@example.org"})).json()
        assert (tested["outcome"], server.mail_count) == ("held", 0)
        assert "535" in tested["error"]
        nonsense = await client.post("/api/v1/channels/mail/test", json={"to": "a@example.org\r\nRCPT TO:<x@y>"})
        assert (nonsense.status_code, nonsense.json()["field"]) == (422, "to")
        assert (await client.post("/api/v1/channels/nobody/test", json={"to": "a@b.example"})).status_code == 404


@pytest.mark.bad_input(30)
@pytest.mark.parametrize("caller", ["viewer", "operator", "site", None])
async def test_only_an_administrator_may_test_a_channel_and_see_a_banner(front: Front, caller: str | None) -> None:
    async with MailServer(hostname="internal-4711.example") as server:
        async with front.client("admin") as client:
            await add(client, settings=MAIL | {"port": server.port})
        async with front.client(caller) as client:
            answer = await client.post("/api/v1/channels/mail/test", json={"to": "a@example.org"})
        assert answer.status_code in (401, 403)
        assert "4711" not in answer.text
        assert len(server.connections) == 0
    assert await front.centre.store.read(audited_tests) == []


def channel_row(conn: Connection) -> dict[str, Any]:
    row = dict(conn.execute(text("select * from channels")).mappings().one())
    return {
        name: json.loads(v) if name in ("settings", "secrets") and isinstance(v, str) else v for name, v in row.items()
    }


def audited_tests(conn: Connection) -> list[tuple[str, str, Any]]:
    found = conn.execute(text("select target, actor, extra from audit where request_summary = 'channel.test'"))
    return [(r.target, r.actor, json.loads(r.extra) if isinstance(r.extra, str) else r.extra) for r in found]


@pytest.mark.threat(32)
@pytest.mark.parametrize(
    "change",
    [{"host": "127.0.0.2"}, {"port": 2599}, {"tls": "starttls"}, {"username": "mallory"}],
    ids=lambda change: next(iter(change)),
)
async def test_changed_destination_requires_the_stored_secret_again(front: Front, change: dict[str, object]) -> None:
    """Otherwise a stolen session could read the password at a server of its own."""
    (name,) = change
    async with front.client("admin") as client:
        await add(client)
        refused = await client.patch("/api/v1/channels/mail", json={"version": 1, "settings": change})
        assert (refused.status_code, refused.json()["code"]) == (422, "settings.secret_again")
        assert refused.json()["field"] == "secrets.password"
        assert f"because {name}" in refused.json()["detail"]
        empty = {"version": 1, "settings": change, "secrets": {"password": ""}}
        assert (await client.patch("/api/v1/channels/mail", json=empty)).status_code == 422, "empty keeps it"
        again = {"version": 1, "settings": change, "secrets": {"password": "given again"}}
        assert (await client.patch("/api/v1/channels/mail", json=again)).status_code == 200
    assert await password_of(front) == "given again"


@pytest.mark.threat(32)
async def test_the_token_url_of_a_stored_client_secret_needs_the_secret_again(front: Front) -> None:
    oauth = {
        **{"auth": "oauth2", "tls": "starttls", "username": "ops@plant.example", "oauth_client_id": "fieldpost"},
        "oauth_token_url": "https://127.0.0.1:8443/token",
    }
    async with front.client("admin") as client:
        await add(client, settings=MAIL | oauth, secrets={"oauth_client_secret": CANARY})
        moved = {"version": 1, "settings": {"oauth_token_url": "https://127.0.0.2:8443/token"}}
        refused = await client.patch("/api/v1/channels/mail", json=moved)
        assert (refused.status_code, refused.json()["field"]) == (422, "secrets.oauth_client_secret")


SIGNING = "whsec_" + base64.b64encode(bytes(range(32))).decode()
BY_OAUTH = {"auth": "oauth2", "token_url": "https://127.0.0.1:8443/token", "client_id": "fieldpost"}
BY_PASSWORD = {"auth": "basic", "username": "fieldpost"}
KANNEL = {"dialect": "kannel", "url": "https://127.0.0.1:13013/sendsms", "username": "fieldpost"}
BOT = "123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11"


@pytest.mark.threat(32)
@pytest.mark.parametrize(
    ("kind", "settings", "secret", "value", "change"),
    [
        ("webhook", BY_OAUTH, "auth_secret", CANARY, {"token_url": "https://127.0.0.2:8443/token"}),
        ("webhook", BY_OAUTH, "auth_secret", CANARY, {"auth": "basic", "username": "fieldpost"}),
        ("webhook", BY_PASSWORD, "auth_secret", CANARY, {"username": "mallory"}),
        ("ntfy", {"url": "https://127.0.0.1"}, "token", CANARY, {"url": "https://127.0.0.2"}),
        ("sms", KANNEL, "password", CANARY, {"url": "https://127.0.0.2:13013/sendsms"}),
        ("sms", KANNEL, "password", CANARY, {"username": "mallory"}),
        ("telegram", {"url": "https://127.0.0.1"}, "token", BOT, {"url": "https://127.0.0.2"}),
    ],
)
async def test_stored_secret_of_any_channel_type_is_not_sent_to_another_host(
    front: Front, kind: str, settings: dict[str, object], secret: str, value: str, change: dict[str, object]
) -> None:
    """A signing secret is never sent, so it may stay."""
    signing = {"secret": SIGNING} if kind == "webhook" else {}
    new = {"name": "away", "type": kind, "settings": settings, "secrets": signing | {secret: value}}
    async with front.client("admin") as client:
        assert (added := await client.post("/api/v1/channels", json=new)).status_code == 201, added.text
        kept = await client.patch("/api/v1/channels/away", json={"version": 1, "max_retries": 3})
        assert kept.status_code == 200, kept.text
        moved = {"version": 2, "settings": change}
        refused = await client.patch("/api/v1/channels/away", json=moved)
        assert (refused.status_code, refused.json()["code"]) == (422, "settings.secret_again")
        assert refused.json()["field"] == f"secrets.{secret}"
        again = await client.patch("/api/v1/channels/away", json=moved | {"secrets": {secret: value}})
        assert again.status_code == 200, again.text
        assert set(again.json()["secrets"]) == {*signing, secret}


@pytest.mark.threat(32)
async def test_the_audit_has_old_and_new_values_of_plain_settings_and_no_secret(front: Front) -> None:
    async with front.client("admin") as client:
        await add(client)
        body = {"version": 1, "settings": {"port": 2599}, "secrets": {"password": f"{CANARY}-2"}, "max_retries": 3}
        assert (await client.patch("/api/v1/channels/mail", json=body)).status_code == 200
    rows = await front.centre.rows("select extra from audit where request_summary = 'channel.change'")
    (extra,) = (row[0] if isinstance(row[0], dict) else json.loads(str(row[0])) for row in rows)
    assert extra["changes"] == {"max_retries": {"old": 10, "new": 3}, "port": {"old": 2525, "new": 2599}}
    assert extra["secrets"] == ["password"]
    everything = str(await front.centre.rows("select * from audit"))
    assert "alerts@plant.example" in everything, "the values of a new channel too"
    assert CANARY not in everything

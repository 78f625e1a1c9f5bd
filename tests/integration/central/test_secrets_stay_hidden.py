"""A canary planted in every secret field is found nowhere, whatever goes wrong.

A real central with real channels: a mail server that repeats the password in its replies, a token endpoint that repeats
the client's secret, an adapter that crashes with the password in its exception. Then everything that anybody could read
is searched: the log, what the commands print, every answer of the API, the export, every page, and the whole database.
"""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote_plus

import pytest
from aiohttp import web

from fieldpost.testing import HttpServer, MailServer
from support.running_central import RunningCentral, call, until
from support.secret_search import Reader, everything_stored
from support.sender import Sender
from support.zgw import KANAAL, notification, token

PASSWORD = "kanarie+passwort/4711 é\"'"
CLIENT_SECRET = "kanarie&klient=4712"
USER = "alerts@plant.example"
CRASH = (
    "from fieldpost.central.adapters.email.adapter import EmailAdapter; deliver = EmailAdapter.deliver\n"
    "async def crash(self, envelope):\n"
    "    if envelope.list_name != 'crash': return await deliver(self, envelope)\n"
    "    password = envelope.settings['password'].reveal()\n"
    "    raise ValueError(f'cannot log in with {password}') from KeyError(password)\n"
    "EmailAdapter.deliver = crash\n"
)


def forms(secret: str) -> set[str]:
    """The canary as it might be found: as it is, encoded, and as a login dialogue sends it."""
    raw = secret.encode()
    login = base64.b64encode(b"\0" + USER.encode() + b"\0" + raw).decode()
    return {secret, quote_plus(secret), base64.b64encode(raw).decode(), login, secret[:12]}


AUTH_SECRET = "kanarie-kopfzeile-4713"
ACCESS_TOKEN = "kanarie-zugang-4714"
SIGNING = "whsec_" + base64.b64encode(b"kanarie unterschrift 4715").decode()
CANARIES = forms(PASSWORD) | forms(CLIENT_SECRET)
OF_SUBSCRIPTIONS = (
    forms(AUTH_SECRET) | forms(ACCESS_TOKEN) | forms(CLIENT_SECRET) | {SIGNING, SIGNING[6:], SIGNING[6:18]}
)


def found_in(text: str, canaries: set[str] = CANARIES) -> list[str]:
    return [canary for canary in canaries if canary in text]


@asynccontextmanager
async def talkative_token_endpoint() -> AsyncIterator[str]:
    """Refuses everybody, and repeats what it was told."""

    async def refuse(request: web.Request) -> web.Response:
        told = f"{await request.text()} {request.headers.get('Authorization')} {CLIENT_SECRET}"
        return web.json_response({"error": "invalid_client", "error_description": told}, status=401)

    app = web.Application()
    app.router.add_post("/token", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/token"
    finally:
        await runner.cleanup()


@pytest.mark.req("ADP-13")
@pytest.mark.dec("DEC-34")
@pytest.mark.threat(23, 24)
async def test_a_canary_in_every_secret_field_is_found_nowhere(store_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "central"
    (tmp_path / "password").write_text(PASSWORD + "\n")
    (tmp_path / "client").write_text(CLIENT_SECRET + "\n")
    async with (
        MailServer(auth=lambda given: False) as server,
        talkative_token_endpoint() as token_url,
        RunningCentral(store_url, folder, first=CRASH) as node,
    ):
        login = base64.b64encode(b"\0" + USER.encode() + b"\0" + PASSWORD.encode()).decode()
        server.on("auth").reply(535, f"5.7.8 bad {PASSWORD} in AUTH PLAIN {login}")
        reader = Reader(node, folder)
        await furnish(reader, tmp_path, server.port, token_url)
        site = await call(node, reader.token, "POST", "sites", {"name": "plant-7"})
        async with Sender(site["token"], node.url) as sender:
            ids = await sender.send(9, "basic", "oauth", "crash")
        await node.until_logged("attempt.crashed", 3)
        await until(lambda: len(node.events("attempt.finished")) >= 9, 30, "an attempt for each")
        await look_at_everything(reader, ids)
        assert server.seen["auth"] > 0, "the password was really sent"
        assert await node.stop() == 0
        log = node._log.read_text()
    assert "cannot log in with ***" in log, "the crash was logged, and the password in it was not"
    assert "***" in str(reader.shown), "what the server repeated was shown, and the password in it was not"
    places = dict(reader.shown) | {"log": log} | await everything_stored(store_url)
    places |= {str(file): file.read_text("latin-1") for file in folder.rglob("*") if file.is_file()}
    assert {place: found for place, text in places.items() if (found := found_in(text))} == {}
    assert len(places) > 20


@asynccontextmanager
async def talkative_receiver() -> AsyncIterator[str]:
    """Fails, and repeats all that it was sent, in header and body; `/token` gives anybody an access token."""

    async def repeat(request: web.Request) -> web.Response:
        told = " ".join(f"{name}: {value}" for name, value in request.headers.items())
        headers = {"X-Told": request.headers.get("X-Key", "") + request.headers.get("Authorization", "")}
        return web.Response(status=500, text=f"what is {told}?", headers=headers)

    async def give(request: web.Request) -> web.Response:
        return web.json_response({"access_token": ACCESS_TOKEN, "token_type": "Bearer", "expires_in": 3600})

    app = web.Application()
    app.router.add_post("/token", give)
    app.router.add_post("/{name}", repeat)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.dec("DEC-34")
@pytest.mark.threat(16, 23)
async def test_a_canary_in_every_secret_of_a_subscription_is_found_nowhere(store_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "central"
    for name, text in {"auth": AUTH_SECRET, "client": CLIENT_SECRET, "signing": SIGNING}.items():
        (tmp_path / name).write_text(text + "\n")
    environment = {"FIELDPOST_WEBHOOKS__ALLOW_PLAIN": "true", "FIELDPOST_OUTBOUND__ALLOW": "127.0.0.0/8"}
    async with (
        talkative_receiver() as receiver,
        talkative_token_endpoint() as refusing,
        RunningCentral(store_url, folder, environment=environment) as node,
    ):
        reader = Reader(node, folder)
        ids = await subscribe_everybody(reader, tmp_path, receiver, refusing)
        await reader.run("topics", "save", "orders")
        await reader.run("events", "publish", "orders", "{}")
        await until(lambda: len(node.events("attempt.finished")) >= 2, 30, "an attempt for those with credentials")
        nouns = "subscriptions subscriptions/unhealthy breakers notifications audit events tokens"
        for noun in nouns.split():
            assert await reader.get(f"/api/v1/{noun}")
        for id_ in ids:
            assert '"set"' in await reader.get(f"/api/v1/subscriptions/{id_}")
            await reader.get(f"/api/v1/subscriptions/{id_}/deliveries")
            for command in ("show", "log", "test"):
                await reader.run("subscriptions", command, id_)
        assert await node.stop() == 0
        log = node._log.read_text()
    assert "what is" in str(reader.shown), "the answers were shown"
    assert "***" in str(reader.shown), "and the secrets in them were not"
    places = dict(reader.shown) | {"log": log} | await everything_stored(store_url)
    places |= {str(file): file.read_text("latin-1") for file in folder.rglob("*") if file.is_file()}
    assert {place: found for place, text in places.items() if (found := found_in(text, OF_SUBSCRIPTIONS))} == {}
    assert len(places) > 15


async def subscribe_everybody(reader: Reader, folder: Path, receiver: str, refusing: str) -> list[str]:
    """Subscriptions with each kind of credentials; their ids."""
    signing = ("--secret-file", f"secret={folder / 'signing'}", "--set", "quick_tries=0", "--owner", "acme")
    auth, client = f"auth_secret={folder / 'auth'}", f"auth_secret={folder / 'client'}"
    oauth = ("--set", "auth=oauth2", "--set", "client_id=me", "--secret-file", client)
    given = {
        "header": ("--set", "auth=header", "--set", "auth_header=X-Key", "--secret-file", auth),
        "basic": ("--set", "auth=basic", "--set", f"username={USER}", "--secret-file", auth),
        "token": (*oauth, "--set", f"token_url={receiver}/token"),
        "refused": (*oauth, "--set", f"token_url={refusing}"),
    }
    for name, more in given.items():
        await reader.run("subscriptions", "add", name, "--url", f"{receiver}/{name}", *signing, *more)
        # Wrongly, and to another host: errors are shown too.
        await reader.run("subscriptions", "add", name, "--url", f"{receiver}/{name}", *signing, *more)
        await reader.run("subscriptions", "add", f"{name} 2", "--url", "file:///etc/passwd", *signing, *more)
    found = json.loads(await reader.get("/api/v1/subscriptions"))["subscriptions"]
    assert [one["name"] for one in found] == sorted(given), reader.shown
    await reader.run("subscriptions", "change", found[0]["subscription_id"], "--url", "http://127.0.0.2:1/in")
    return [one["subscription_id"] for one in found]


KLANT = "kanarie-klant-4716-ruim-genoeg-bytes"
ABONNEMENT = "kanarie-abonnement-4717"


@pytest.mark.req("ZGW-10")
@pytest.mark.dec("DEC-34")
@pytest.mark.threat(14, 16, 23)
async def test_a_canary_in_every_secret_of_the_zgw_api_is_found_nowhere(store_url: str, tmp_path: Path) -> None:
    """The callback repeats its `auth`. The policy of abonnementen is that of the setting, so that one parks soon."""
    folder = tmp_path / "central"
    environment = {
        "FIELDPOST_FRONT__PUBLIC_URL": "https://fieldpost.example.org",
        "FIELDPOST_OUTBOUND__ALLOW": "127.0.0.1",
        "FIELDPOST_WEBHOOKS__ALLOW_PLAIN": "true",
        "FIELDPOST_ZGW__ENABLED": "true",
        "FIELDPOST_ZGW__RETRY": "fixed:1s:2",
    }
    async with HttpServer() as callback, RunningCentral(store_url, folder, environment=environment) as node:
        reader = Reader(node, folder)
        callback.on(path="/in", when=lambda request: b'"test"' in request.body).answer(204)
        callback.on().answer(500, f"what is {ABONNEMENT} of Bearer {ABONNEMENT}?", {"X-Told": ABONNEMENT})
        await reader.run("zgw-clients", "add", "made", "--scope", "publiceren", "--json")
        made = json.loads(reader.shown.popitem()[1])["secret"]
        given = {"client_id": "both", "scopes": ["publiceren", "consumeren"], "secret": KLANT}
        for body in (given, given, {**given, "client_id": "a*b"}, {**given, "scopes": ["lezen"]}):
            await reader.post("zgw-clients", body)
        tokens = [token("both", KLANT, datetime.now(UTC)), token("both", made, datetime.now(UTC)), f"a.{KLANT}.b"]
        await use_as_application(reader, tokens, callback.url)
        await until(lambda: len(node.events("attempt.finished")) >= 2, 30, "the last attempt")
        [notification_id] = {line["notification_id"] for line in node.events("attempt.finished")}
        for path in (
            "subscriptions",
            "zgw-clients",
            "topics",
            "notifications",
            "audit",
            "events",
            "breakers",
            "health",
        ):
            assert await reader.get(f"/api/v1/{path}")
        [abonnement] = json.loads(reader.shown["/api/v1/subscriptions"])["subscriptions"]
        await reader.get(f"/api/v1/subscriptions/{abonnement['subscription_id']}/deliveries")
        for command in ("show", "log"):
            await reader.run("subscriptions", command, abonnement["subscription_id"])
        await reader.run("notifications", "explain", notification_id)
        await reader.run("zgw-clients", "list")
        assert await node.stop() == 0
        log = node._log.read_text()
    assert '"parked"' in reader.shown["/api/v1/notifications"], "after the two attempts of the setting"
    assert "what is *** of ***?" in str(reader.shown), "the answer was shown, and the secret in it was not"
    places = dict(reader.shown) | {"log": log} | await everything_stored(store_url)
    places |= {str(file): file.read_text("latin-1") for file in folder.rglob("*") if file.is_file()}
    signatures = {one.rpartition(".")[2] for one in tokens[:2]}
    canaries = forms(KLANT) | forms(ABONNEMENT) | forms(made) | signatures
    assert {place: found for place, text in places.items() if (found := found_in(text, canaries))} == {}
    assert len(places) > 20


async def use_as_application(reader: Reader, tokens: list[str], callback_url: str) -> None:
    """Subscribe and publish with the first token, after requests that are rejected."""
    base = "/notificaties/api/v1"
    good, *wrong = tokens
    for one in wrong:
        await reader.post_as(one, f"{base}/kanaal", KANAAL)
    await reader.post_as(good, f"{base}/kanaal", KANAAL)
    abonnement = {"auth": f"Bearer {ABONNEMENT}", "kanalen": [{"naam": KANAAL["naam"], "filters": {}}]}
    for more in (
        {"callbackUrl": f"{callback_url}/fails"},
        {"callbackUrl": "file:///etc/passwd"},
        {"callbackUrl": f"{callback_url}/in", "auth": f"Bearer {ABONNEMENT}\r\nX: 1"},
        {"callbackUrl": f"{callback_url}/in", "auth": ABONNEMENT * 200},
        {"callbackUrl": f"{callback_url}/in"},
    ):
        await reader.post_as(good, f"{base}/abonnement", {**abonnement, **more})
    assert await reader.post_as(good, f"{base}/notificaties", notification()) == 201


async def furnish(reader: Reader, folder: Path, port: int, token_url: str) -> None:
    mail = ["--set", "host=127.0.0.1", "--set", f"port={port}", "--set", "tls=none", "--set", f"from_address={USER}"]
    mail += ["--set", f"username={USER}"]
    password, client = f"password={folder / 'password'}", f"oauth_client_secret={folder / 'client'}"
    basic = [*mail, "--set", "auth=basic", "--secret-file", password]
    oauth = [*mail, "--set", "auth=oauth2", "--set", f"oauth_token_url={token_url}", "--set", "oauth_client_id=me"]
    await reader.run("channels", "add", "basic", *basic, "--json")
    await reader.run("channels", "add", "oauth", *oauth, "--secret-file", client, "--secret-file", password)
    # Twice, wrongly, and to nobody: errors are shown too.
    await reader.run("channels", "add", "basic", *basic)
    await reader.run("channels", "add", "other", *basic, "--type", "pigeon")
    await reader.run("channels", "add", "other", *basic, "--set", "tls=nonsense")
    await reader.run("channels", "add", "other", *basic, "--url", "http://127.0.0.1:1")
    await reader.run("channels", "change", "basic", "--secret-file", password)
    for name, channel in (("basic", "basic"), ("oauth", "oauth"), ("crash", "basic")):
        await reader.run("lists", "add", name, "--target", "ann@example.org", "--channel", channel)
    await reader.run("channels", "test", "basic", "--to", "ann@example.org")
    await reader.run("channels", "test", "oauth", "--to", "ann@example.org", "--json")
    await reader.run("secrets", "rotate")


async def look_at_everything(reader: Reader, ids: list[str]) -> None:
    for noun in ("channels", "lists", "notifications", "breakers", "sites", "secrets", "health", "export/lists"):
        assert await reader.get(f"/api/v1/{noun}")
    for name in ("basic", "oauth"):
        assert '"set"' in await reader.get(f"/api/v1/channels/{name}")
        await reader.run("channels", "show", name)
    await reader.get("/api/v1/export/lists?format=csv")
    for one in ids:
        await reader.get(f"/api/v1/notifications/{one}")
    await reader.run("channels", "list")
    await reader.run("notifications", "list")
    await reader.run("notifications", "explain", ids[0])

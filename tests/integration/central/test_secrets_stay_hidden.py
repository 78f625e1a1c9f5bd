"""A canary planted in every secret field is found nowhere, whatever goes wrong.

A real central with real channels: a mail server that repeats the password in its replies, a token endpoint that repeats
the client's secret, an adapter that crashes with the password in its exception. Then everything that anybody could read
is searched: the log, what the commands print, every answer of the API, the export, every page, and the whole database.
"""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote_plus

import aiohttp
import asyncpg
import pytest
from aiohttp import web

from fieldpost.testing import MailServer
from support.commands import fieldpost_here
from support.running_central import RunningCentral, call, until
from support.sender import Sender

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


CANARIES = forms(PASSWORD) | forms(CLIENT_SECRET)


def found_in(text: str) -> list[str]:
    return [canary for canary in CANARIES if canary in text]


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


class Reader:
    """Runs commands and asks the API as an administrator, and keeps all that it is shown."""

    def __init__(self, node: RunningCentral, folder: Path) -> None:
        self.node, self.folder = node, folder
        self.token = (folder / "api-token").read_text().strip()
        self.shown: dict[str, str] = {}

    async def run(self, *arguments: str) -> None:
        environ = {"FIELDPOST_URL": self.node.url, "FIELDPOST_TOKEN": self.token, "COLUMNS": "300"}
        ran = await asyncio.to_thread(fieldpost_here, *arguments, environ=environ, folder=self.folder)
        self.shown[f"fieldpost {' '.join(arguments)}"] = (ran.stdout + ran.stderr).decode()

    async def get(self, path: str) -> str:
        headers = {"Authorization": f"Bearer {self.token}"}
        async with aiohttp.ClientSession(headers=headers) as session, session.get(self.node.url + path) as answer:
            self.shown[path] = await answer.text()
            return self.shown[path]


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


async def everything_stored(store_url: str) -> dict[str, str]:
    """Every row of every table as text. A SQLite file is searched as bytes, with the rest of the folder."""
    if not store_url.startswith("postgresql"):
        file = Path(store_url.removeprefix("sqlite:///"))
        return {str(f): f.read_text("latin-1") for f in file.parent.glob(f"{file.name}*") if f.is_file()}
    connection = await asyncpg.connect(store_url)
    try:
        tables = await connection.fetch("select tablename from pg_tables where schemaname = 'public'")
        return {
            row["tablename"]: str(await connection.fetch(f'select t::text from "{row["tablename"]}" t'))
            for row in tables
        }
    finally:
        await connection.close()

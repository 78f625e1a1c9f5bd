"""A canary in every hook URL, key, token and password of a channel, and in that of the proxy, is found nowhere.

A real central sends through a real proxy to a receiver that refuses everything and repeats all that it was sent. Then
everything that anybody could read is searched: the log, what the commands print, every answer of the API, the export,
and the whole database.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from fieldpost.testing.http import HttpServer
from fieldpost.testing.http.rules import HttpReaction, ReceivedRequest
from support import tinyproxy
from support.provider_worlds import AUTHORITY, server_context
from support.running_central import RunningCentral, call, until
from support.secret_search import Reader, everything_stored
from support.sender import Sender

ACCOUNT = "AC" + "0123456789abcdef" * 2


def canary(name: str) -> str:
    return f"kanarie-{name}-48f1c7"


KEY = "kanariepagerduty48f1c7".ljust(32, "0")
CANARIES = {
    **{name: canary(name) for name in ("slack", "teams", "telegram", "ntfy", "apprise", "twilio")},
    "pagerduty": KEY,
    # Encoded differently in a query, in a form and in a header.
    "kannel": canary("kannel") + "+/&= 7",
    "http": canary("http") + '%"<7',
}


@dataclass(frozen=True)
class Planted:
    """A channel and its only list, with a canary in the channel's secret or in the target's."""

    type: str
    target: str
    settings: dict[str, object] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    target_secret: str | None = None


def planted(url: str) -> dict[str, Planted]:
    host = url.removeprefix("https://")
    hooks = {
        "slack": f"{url}/services/T0/B0/{CANARIES['slack']}",
        "teams": f"{url}/workflows/x/invoke?sig={CANARIES['teams']}",
        "apprise": f"jsons://{host}/{CANARIES['apprise']}/?verify=no",
    }
    kannel = {"dialect": "kannel", "url": f"{url}/cgi-bin/sendsms", "username": "fieldpost"}
    twilio = {"dialect": "twilio", "url": url, "username": ACCOUNT, "sender": "+15005550006"}
    gateway = {"dialect": "http", "url": f"{url}/send?to={{number}}&key={{password}}", "username": "fieldpost"}
    texts = {"kannel": kannel, "twilio": twilio, "http": gateway}
    return {
        **{name: Planted(name, f"label-{name}", target_secret=hook) for name, hook in hooks.items()},
        **{
            name: Planted("sms", "+4915112345678", settings, {"password": CANARIES[name]})
            for name, settings in texts.items()
        },
        "pagerduty": Planted("pagerduty", "desk", {"url": url}, target_secret=KEY),
        "telegram": Planted("telegram", "4711", {"url": url}, {"token": f"123456:{CANARIES['telegram']}"}),
        "ntfy": Planted("ntfy", "alarms", {"url": url}, {"token": CANARIES["ntfy"]}),
    }


def forms(secret: str) -> Iterator[str]:
    """The canary as it might be found."""
    yield from (secret, secret[:16], quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1])
    for login in (secret, f"fieldpost:{secret}", f"{ACCOUNT}:{secret}", f"{tinyproxy.USER}:{secret}"):
        yield base64.b64encode(login.encode()).decode()


def found_in(text: str) -> list[str]:
    return [one for secret in (*CANARIES.values(), tinyproxy.PASSWORD) for one in forms(secret) if one in text]


def repeat(request: ReceivedRequest) -> HttpReaction:
    """Refuse, and repeat what was sent, the secrets first: an error shows the beginning only."""
    told = f"{request.headers.get('authorization', '')} {request.target} ".encode() + request.body
    return HttpReaction(status=400, body=told, headers={"X-Told": request.headers.get("authorization", "")})


@pytest.mark.req("CHN-04")
@pytest.mark.dec("DEC-34", "DEC-64")
@pytest.mark.threat(16, 23)
@pytest.mark.needs("apprise")
@pytest.mark.timeout(240)
async def test_a_canary_in_every_secret_of_a_channel_and_of_the_proxy_is_found_nowhere(
    store_url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "central"
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with tinyproxy.tinyproxy() as proxy:
        environment = {f"FIELDPOST_OUTBOUND__{name.upper()}": text for name, text in proxy.options.items()}
        environment |= {"FIELDPOST_OUTBOUND__ALLOW": "127.0.0.1", "SSL_CERT_FILE": str(tmp_path / "ca.pem")}
        async with (
            HttpServer(tls=server_context(), on_request=repeat) as receiver,
            RunningCentral(store_url, folder, environment=environment) as node,
        ):
            reader = Reader(node, folder)
            channels = planted(receiver.url)
            for name, one in channels.items():
                await plant(reader, name, one)
            site = await call(node, reader.token, "POST", "sites", {"name": "plant-7"})
            async with Sender(site["token"], node.url) as sender:
                ids = await sender.send(len(channels), *channels)
            await until(lambda: len(node.events("attempt.finished")) >= len(channels), 60, "an attempt for each")
            await look_at_everything(reader, channels, ids)
            requests = " ".join(f"{one.target} {one.headers} {one.body!r}" for one in receiver.requests)
            assert await node.stop() == 0
            log = node._log.read_text()
        assert f"CONNECT 127.0.0.1:{receiver.port}" in proxy.log(), "the password of the proxy was sent"
    unsent = [name for name, secret in CANARIES.items() if not any(form in requests for form in forms(secret))]
    assert unsent == [], "every canary was really sent"
    assert str(reader.shown).count("***") > len(channels), "the answers were shown, and the secrets in them were not"
    places = dict(reader.shown) | {"log": log} | await everything_stored(store_url)
    places |= {str(file): file.read_text("latin-1") for file in folder.rglob("*") if file.is_file()}
    assert {place: found for place, text in places.items() if (found := found_in(text))} == {}
    assert len(places) > 3 * len(channels)


async def plant(reader: Reader, name: str, one: Planted) -> None:
    """Add a channel and its list, and once each with a mistake, whose error is shown too."""
    channel = {"name": name, "type": one.type, "settings": one.settings, "secrets": one.secrets}
    notified: dict[str, Any] = {"name": name, "type": one.type, "targets": [one.target], "channel": name}
    if one.target_secret is not None:
        notified["secrets"] = {one.target: one.target_secret}
    await reader.post("channels", channel)
    await reader.post("channels", channel)
    await reader.post("channels", {**channel, "name": "wrong", "settings": {**one.settings, "nonsense": "1"}})
    assert '"version"' in await reader.post("lists", notified)
    broken = {label: f"http://{secret}" for label, secret in notified.get("secrets", {}).items()}
    await reader.post("lists", {**notified, "name": "wrong", "secrets": broken | {"nobody": CANARIES["slack"]}})


async def look_at_everything(reader: Reader, channels: dict[str, Planted], ids: list[str]) -> None:
    for noun in ("channels", "lists", "notifications", "breakers", "audit", "secrets", "health", "settings"):
        assert await reader.get(f"/api/v1/{noun}")
    for form in ("csv", "json"):
        await reader.get(f"/api/v1/export/lists?format={form}")
    for name, one in channels.items():
        await reader.get(f"/api/v1/channels/{name}")
        await reader.get(f"/api/v1/lists/{name}")
        tested = await reader.post(f"channels/{name}/test", {"to": one.target})
        assert '"transcript"' in tested, tested
    for one_id in ids:
        assert '"parked"' in await reader.get(f"/api/v1/notifications/{one_id}")
    await reader.run("channels", "test", "slack", "--to", "label-slack")
    await reader.run("lists", "show", "teams")
    await reader.run("notifications", "explain", ids[0])

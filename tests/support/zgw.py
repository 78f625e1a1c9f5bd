"""The other side of the ZGW API: clients with their tokens."""

import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import httpx2
from starlette.applications import Starlette

from fieldpost.central.adapters.webhook.adapter import WebhookAdapter
from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.operate.operate import Operate
from fieldpost.central.operate.zgw.options import ZgwOptions
from fieldpost.central.store.notifications.live_rows import HURRY_S
from fieldpost.core.secret import Secret
from fieldpost.core.zgw.token import sign
from fieldpost.front.app import create_app
from fieldpost.front.options import FrontOptions
from fieldpost.outbound.options import OutboundOptions
from fieldpost.outbound.outbound import Outbound
from fieldpost.testing.http import HttpServer
from support.front import ADMIN, Front


def token(client_id: str, secret: str, now: datetime, **claims: Any) -> str:
    """A JWT as the libraries of this field make it; claims that are None are left out."""
    issued = int(now.timestamp())
    given = {"iss": client_id, "iat": issued, "client_id": client_id, "user_id": "", "user_representation": ""}
    header = _part({"typ": "JWT", "alg": "HS256"})
    signed = f"{header}.{_part({name: value for name, value in (given | claims).items() if value is not None})}"
    signature = base64.urlsafe_b64encode(sign(signed.encode(), Secret(secret))).decode().rstrip("=")
    return f"{signed}.{signature}"


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


KANAAL = {
    "naam": "zaken",
    "documentatieLink": "https://ref.example.nl/#zaken",
    "filters": ["bronorganisatie", "zaaktype"],
}
AUTH = "Bearer canary-of-auth"
SECRET = "a-secret-of-a-zgw-client-canary-1"
PUBLIC = "https://fieldpost.example.org"
BASE = "/notificaties/api/v1"


def notification(**more: Any) -> dict[str, Any]:
    """A notification on the kanaal above; fields that are None are left out."""
    fields = {
        "kanaal": "zaken",
        "hoofdObject": "https://zaken.example.nl/api/v1/zaken/1",
        "resource": "status",
        "resourceUrl": "https://zaken.example.nl/api/v1/statussen/7",
        "actie": "create",
        "aanmaakdatum": "2025-01-01T12:00:00Z",
        "kenmerken": {"bronorganisatie": "517439943", "zaaktype": "https://catalogi.example.nl/zaaktypen/1"},
    }
    return {name: value for name, value in (fields | more).items() if value is not None}


@dataclass
class Zgw:
    """Central with the ZGW API, two clients and a callback on loopback."""

    front: Front
    operate: Operate
    app: Starlette
    adapter: WebhookAdapter
    callback: HttpServer
    options: ZgwOptions

    def client(self, name: str = "both", **claims: Any) -> httpx2.AsyncClient:
        """Speaks to the API as this client; its token is of this moment."""
        headers = {"Authorization": f"Bearer {token(name, SECRET, self.front.clock.now(), **claims)}"}
        return self.bare(headers)

    def bare(self, headers: Mapping[str, str] | None = None) -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(app=self.app, raise_app_exceptions=False)
        return httpx2.AsyncClient(transport=transport, base_url=f"http://wrong.example{BASE}/", headers=headers)

    def abonnement(self, *kanalen: Mapping[str, Any], path: str = "/in", **more: Any) -> dict[str, Any]:
        entries = kanalen or ({"naam": "zaken", "filters": {}},)
        return {"callbackUrl": self.callback.url + path, "auth": AUTH, "kanalen": list(entries), **more}

    async def create(self, path: str, body: Mapping[str, Any], client: str = "both") -> dict[str, Any]:
        async with self.client(client) as caller:
            answer = await caller.post(path, json=body)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    async def deliver(self) -> None:
        """All that is due, over the real adapter."""
        centre = self.front.centre
        self.front.clock.advance(HURRY_S)
        made = centre.dispatcher(abonnement_retry=self.options.retry_policy)
        async with made.running():
            for _ in range(4):
                await made.sweep()
                await made.idle()

    def received(self, path: str = "/in") -> list[bytes]:
        """The notifications that the callback got, without tests."""
        return [r.body for r in self.callback.requests if r.path == path and b'"kanaal": "test"' not in r.body]


@asynccontextmanager
async def open_zgw(
    front: Front,
    public_url: str = PUBLIC,
    *,
    outbound: Outbound | None = None,
    limits: FrontOptions | None = None,
    **options: Any,
) -> AsyncIterator[Zgw]:
    """The API over the front's store, with clients `publisher`, `consumer` and `both`."""
    outbound = outbound or Outbound(OutboundOptions(allow="127.0.0.1"))
    webhooks = WebhookOptions(allow_plain=True)
    adapter = WebhookAdapter(outbound=outbound, webhooks=webhooks, deadline_s=5)
    centre, clock = front.centre, front.clock
    zgw = ZgwOptions(enabled=True, **options)
    centre.adapters["webhook"] = adapter
    operate = Operate.over(
        centre.store, {**centre.adapters}, clock, centre.keyring, webhooks=webhooks, pool=centre.pool, zgw=zgw
    )
    limits = replace(limits or FrontOptions(), public_url=public_url)
    app = create_app(operate, front.watch, centre.ingest, front.commands, limits, clock, zgw=zgw)
    for name, scopes in (
        ("publisher", ["publiceren"]),
        ("consumer", ["consumeren"]),
        ("both", ["publiceren", "consumeren"]),
    ):
        await operate.zgw_clients.add(ADMIN, name, scopes, secret=SECRET)
    async with HttpServer() as callback:
        callback.on(when=lambda r: not r.headers.get("authorization") and r.path != "/open").answer(403)
        try:
            yield Zgw(front, operate, app, adapter, callback, zgw)
        finally:
            await outbound.close()

"""Central as the libraries of the ZGW APIs use it: a Django project with notifications-api-common and zds_client."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fieldpost.front.options import FrontOptions
from fieldpost.front.server import CentralServer
from fieldpost.testing import ManualClock
from support.front import open_front
from support.ports import free_port
from support.running_central import RunningCentral, call, until
from support.zgw import SECRET, Zgw, open_zgw, token
from support.zgw_process import ZgwApp, zgw_app

pytestmark = pytest.mark.needs("zgw", "postgres")


@asynccontextmanager
async def running(store_url: str, database: str, **options: Any) -> AsyncIterator[tuple[Zgw, ZgwApp]]:
    """Central on this store, served on a port, and the project as a process."""
    # The project has the real time and rejects notifications of the future; `deliver` advances this clock.
    clock = ManualClock(datetime.now(UTC) - timedelta(minutes=1))
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    async with open_front(store_url, clock) as front, open_zgw(front, url, **options) as zgw:
        server = CentralServer(zgw.app, listening, FrontOptions(public_url=url))
        serving = asyncio.create_task(server.serve())
        await server.ready()
        try:
            async with zgw_app(database, f"{url}/notificaties/api/v1/", "both", SECRET) as app:
                yield zgw, app
        finally:
            server.should_exit = True
            await serving


@pytest.mark.req("ZGW-02", "ZGW-03", "ZGW-05", "ZGW-07", "ZGW-09", "ZGW-12", "DEC-63")
async def test_a_project_registers_subscribes_publishes_and_receives(store_url: str, empty_pg_url: str) -> None:
    async with running(store_url, empty_pg_url, require_rejection=True) as (zgw, app):
        assert "Registered kanaal 'zaken'" in await app.do("register-kanalen")
        assert "Updated already existing kanaal 'zaken'" in await app.do("register-kanalen")
        async with zgw.client() as client:
            [kanaal] = (await client.get("kanaal")).json()
        assert kanaal["filters"] == ["bronorganisatie", "object_type"]
        assert kanaal["documentatieLink"].endswith("#zaken")
        subscribed = json.loads(await app.do("subscribe"))
        assert subscribed["url"].startswith(kanaal["url"].rpartition("/kanaal")[0])
        [abonnement] = await zgw.operate.subscriptions.find()
        assert abonnement.auth_expires_at is not None
        assert 11.9 * 3600 < abonnement.auth_expires_at.timestamp() - time.time() <= 12 * 3600
        await app.create_zaak(bronorganisatie="517439943", objectType="boom")
        await zgw.deliver()
        test, body = await app.received()
        assert json.loads(test)["kanaal"] == "test"
        [(payload,)] = await zgw.front.centre.rows("select payload from events")
        assert body.decode() == payload
        sent = json.loads(body)
        assert sent["kenmerken"] in ({"bronorganisatie": "517439943", k: "boom"} for k in ("objectType", "object_type"))
        auth = token("receiver", SECRET, datetime.now(UTC))
        assert json.loads(await app.do("zds-client", **{"X-Auth": f"Bearer {auth}"})) == BY_ZDS_CLIENT


BY_ZDS_CLIENT = {
    "kanalen": ["besluiten", "zaken"],
    "filters": ["a"],
    "read": True,
    "patched": True,
    "published": True,
    "left": 1,
}
"""Without a token it read the document, then listed, created, changed, published and deleted by operation id."""


KILLED_AFTER_COMMIT = """
import os, signal
from fieldpost.central.ingest.publish import Publisher
record = Publisher.publish
async def publish(publisher, source, published):
    await record(publisher, source, published)
    os.kill(os.getpid(), signal.SIGKILL)
Publisher.publish = publish
"""


@pytest.mark.req("ZGW-04")
@pytest.mark.fault(17)
async def test_after_a_node_was_killed_before_its_response_one_copy_arrives(
    store_url: str, empty_pg_url: str, tmp_path: Path
) -> None:
    assert await copies_after_a_killed_node(store_url, empty_pg_url, tmp_path, merge_repeats="true") == 1


@pytest.mark.req("ZGW-04")
async def test_after_a_node_was_killed_two_copies_arrive_without_merging(
    store_url: str, empty_pg_url: str, tmp_path: Path
) -> None:
    assert await copies_after_a_killed_node(store_url, empty_pg_url, tmp_path, merge_repeats="false") == 2


async def copies_after_a_killed_node(store_url: str, database: str, folder: Path, *, merge_repeats: str) -> int:
    """A node dies between commit and response; the library gives up, and sends again once another node runs."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    environment = {
        "FIELDPOST_FRONT__PUBLIC_URL": url,
        "FIELDPOST_ZGW__ENABLED": "true",
        "FIELDPOST_ZGW__MERGE_REPEATS": merge_repeats,
        "FIELDPOST_OUTBOUND__ALLOW": "127.0.0.1",
        "FIELDPOST_WEBHOOKS__ALLOW_PLAIN": "true",
    }
    options: dict[str, Any] = {"environment": environment, "port": port}
    async with (
        RunningCentral(store_url, folder, first=f"exec({KILLED_AFTER_COMMIT!r}); ", **options) as node,
        zgw_app(database, f"{url}/notificaties/api/v1/", "both", SECRET) as app,
    ):
        api_token = (folder / "api-token").read_text().strip()
        client = {"client_id": "both", "scopes": ["publiceren", "consumeren"], "secret": SECRET}
        await call(node, api_token, "POST", "zgw-clients", client)
        await app.do("register-kanalen")
        await app.do("subscribe")
        await app.create_zaak(bronorganisatie="517439943")
        await until(lambda: not node.is_running, what="the node to die")
        async with RunningCentral(store_url, folder, **options) as second:
            assert json.loads(await app.do("resend")) == {"sent": 1, "left": 0}

            async def is_delivered() -> bool:
                found = (await call(second, api_token, "GET", "notifications"))["notifications"]
                return bool(found) and all(one["status"] == "delivered" for one in found)

            await until(is_delivered, what="all to be delivered")
            return len([body for body in await app.received() if b'"test"' not in body])

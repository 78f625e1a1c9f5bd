"""`zgw`: single notifications over the ZGW API, 10 of 1,000 abonnementen matching; and verifying a token.

Central is a process of its own, 32 connections send one request after the other. Reference: `POST /api/v1/events` with
an API token, one event per request, to the same subscriptions, in the same run. For orientation: Open Notificaties
states 50 requests a second on four CPUs. The subscriptions are paused, so that only publishing is measured.
"""

import asyncio
import itertools
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import aiohttp
from sqlalchemy import Connection, insert

from bench.harness import Figure, Report, Stopwatch, compare
from bench.stores import Stores
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.events import topics
from fieldpost.central.store.events.subscriptions import lock_for_change
from fieldpost.central.store.schema.event_tables import subscriptions
from fieldpost.core.events.topic import Topic
from fieldpost.core.ids import new_id, new_ids
from fieldpost.core.secret import Secret
from fieldpost.core.times import to_text
from fieldpost.core.zgw.token import is_signed_by, parse_token

from support.running_central import RunningCentral, call  # isort: skip  (bench.stores adds tests/ to the path)
from support.zgw import notification, token  # isort: skip

CONNECTIONS = 32
ABONNEMENTEN = 1_000
GROUP = 10
SECRET = "the secret of the benchmark's client"
VERIFY_S_MAX = 0.000_05
_numbers = itertools.count()


async def run(report: Report, stores: Stores, quick: bool) -> None:
    report.add(await _verify(quick))
    for kind in ("sqlite", "postgresql"):
        with tempfile.TemporaryDirectory() as folder:
            async with _central(stores, kind, Path(folder)) as (url, api_token):
                report.add(await _publish(kind, url, api_token, 200 if quick else 4_000, 2 if quick else 5))


@asynccontextmanager
async def _central(stores: Stores, kind: str, folder: Path) -> AsyncIterator[tuple[str, str]]:
    """A central with the kanaal, the abonnementen and a client; its URL and a publisher's API token."""
    options = {
        "FIELDPOST_FRONT__ITEMS_PER_S": "1000000",
        "FIELDPOST_FRONT__BYTES_PER_S": "1000000000",
        "FIELDPOST_FRONT__PUBLIC_URL": "https://fieldpost.example.org",
        "FIELDPOST_ZGW__ENABLED": "true",
    }
    store_url = await stores.url(kind)
    store = open_store(store_url)
    await store.write(topics.add, Topic(name="zaken", kanaal_id=str(uuid4())), datetime.now(UTC))
    await store.write(_add_abonnementen)
    await store.close()
    async with RunningCentral(store_url, folder / "central", environment=options) as node:
        admin = (folder / "central" / "api-token").read_text().strip()
        client = {"client_id": "bench", "scopes": ["publiceren"], "secret": SECRET}
        await call(node, admin, "POST", "zgw-clients", client)
        added = await call(node, admin, "POST", "tokens", {"name": "bench", "role": "publisher"})
        yield node.url, added["token"]


async def _publish(kind: str, url: str, api_token: str, count: int, rounds: int) -> Figure:
    async def ours() -> float:
        headers = {"Authorization": f"Bearer {token('bench', SECRET, datetime.now(UTC))}"}
        return await _send_all(f"{url}/notificaties/api/v1/notificaties", headers, count, _notification)

    async def reference() -> float:
        return await _send_all(f"{url}/api/v1/events", {"Authorization": f"Bearer {api_token}"}, count, _event)

    name = f"zgw {kind}, {GROUP} of {ABONNEMENTEN}"
    return await compare(name, ours, reference, rounds, "requests/s", "reference: POST /api/v1/events, one each")


async def _send_all(url: str, headers: dict[str, str], count: int, make: Callable[[], bytes]) -> float:
    bodies = iter([make() for _ in range(count)])
    headers = {**headers, "Content-Type": "application/json"}
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)

    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:

        async def send() -> None:
            for body in bodies:
                async with session.post(url, data=body) as answer:
                    assert answer.status == 201, await answer.text()

        watch = Stopwatch()
        await asyncio.gather(*(send() for _ in range(CONNECTIONS)))
        return watch.rate(count)


def _notification() -> bytes:
    number = next(_numbers)
    kenmerken = {"bronorganisatie": "517439943", "zaaktype": f"https://catalogi.example.nl/zaaktypen/{number % 100}"}
    given = {"resource": f"status-{number}", "aanmaakdatum": to_text(datetime.now(UTC)), "kenmerken": kenmerken}
    return json.dumps(notification(**given)).encode()


def _event() -> bytes:
    payload = json.loads(_notification())
    event_id = new_id(datetime.now(UTC), os.urandom(10))
    return json.dumps({"event_id": event_id, "topic": "zaken", "payload": payload}).encode()


def _add_abonnementen(conn: Connection) -> None:
    """Ten for each of a hundred values of a filter."""
    now = datetime.now(UTC)
    lock_for_change(conn)
    rows = [
        {
            "subscription_id": subscription_id,
            "name": f"abonnement {number}",
            "owner": "receivers",
            "filter": [
                {
                    "topic": "zaken",
                    "attributes": {"zaaktype": f"https://catalogi.example.nl/zaaktypen/{number // GROUP}"},
                    "rule": "zgw",
                }
            ],
            "state": "paused",
            "settings": {},
            "secrets": {},
            "created_at": now,
            "updated_at": now,
        }
        for number, subscription_id in enumerate(new_ids(now, os.urandom(10 * ABONNEMENTEN)))
    ]
    conn.execute(insert(subscriptions), rows)


async def _verify(quick: bool) -> Figure:
    """Verifying one token, by CPU time; the reference is the target, 20,000 a second."""
    now = datetime.now(UTC)
    text, secrets, count = token("bench", SECRET, now), [Secret(SECRET)], 2_000 if quick else 20_000

    async def ours() -> float:
        begun = time.process_time()
        for _ in range(count):
            assert is_signed_by(parse_token(text, now), secrets)
        return count / (time.process_time() - begun)

    async def reference() -> float:
        return 1 / VERIFY_S_MAX

    return await compare("zgw, verify a token", ours, reference, 3, "tokens/s", "reference: the target of 0.05 ms")

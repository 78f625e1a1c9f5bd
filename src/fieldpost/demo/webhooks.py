"""Events and webhooks of the demo: an application publishes work orders, and two receivers get them.

One receiver always accepts. The other answers 503 for a while after each start, so that its deliveries are retried, it
is blocked, and it gets everything once it has recovered. Both verify every request.
"""

import base64
import itertools
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from fieldpost.clock import Clock
from fieldpost.core.errors import FieldpostError, NotFound
from fieldpost.core.events.signature import InvalidWebhook, verify
from fieldpost.core.ids import new_id
from fieldpost.core.secret import Secret
from fieldpost.demo.central_api import CentralApi
from fieldpost.demo.scenario import (
    APPLICATION,
    OWNER,
    QUICK_TRIES,
    RECEIVERS,
    RECOVERING,
    TOPIC,
    WEBHOOK_RETRY_S,
    WORK_ORDERS,
)

BODY_BYTES_MAX = 1024 * 1024


class Receivers:
    """Receivers of the demo's subscriptions, on one loopback port."""

    def __init__(self, clock: Clock, failing_s: float) -> None:
        self._clock = clock
        self._failing_s = failing_s
        self._fails_until: float | None = None
        # The receivers get a new secret at each start; only this process and central know it.
        self.secrets = {name: "whsec_" + base64.b64encode(os.urandom(32)).decode() for name in RECEIVERS}
        self.accepted: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    @asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncIterator[str]:
        """Serve the receivers; yields the URL before their names. Raises OSError if the port is in use."""
        application = web.Application(client_max_size=BODY_BYTES_MAX)
        application.router.add_post("/{name}", self._receive)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    async def _receive(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self.secrets:
            return web.Response(status=404, text="unknown receiver")
        body = await request.read()
        try:
            verify([Secret(self.secrets[name])], request.headers, body, self._clock.now())
        except InvalidWebhook as error:
            return web.Response(status=401, text=error.message)
        if name == RECOVERING and self._is_failing():
            self.refused[name] += 1
            return web.Response(status=503, text="the parts database is being restored")
        self.accepted[name] += 1
        return web.Response(status=204)

    def _is_failing(self) -> bool:
        """From its first request on, however long the start takes."""
        now = self._clock.monotonic()
        if self._fails_until is None:
            self._fails_until = now + self._failing_s
        return now < self._fails_until


async def set_up_webhooks(api: CentralApi, receivers: Receivers, url: str) -> None:
    """Create the topic and the subscriptions if they are missing; existing ones get this run's URL and secret."""
    try:
        await api.get("topics", TOPIC)
    except NotFound:
        await api.put("topics", TOPIC, body={"description": "Work orders of the maintenance team."})
    found = (await api.get("subscriptions", owner=OWNER))["subscriptions"]
    known = {one["name"]: one for one in found}
    for name in RECEIVERS:
        settings = {"url": f"{url}/{name}", "quick_tries": QUICK_TRIES}
        body = {"settings": settings, "secrets": {"secret": receivers.secrets[name]}}
        if name in known:
            one = known[name]
            await api.patch("subscriptions", one["subscription_id"], body=body | {"version": one["version"]})
        else:
            retry = f"fixed:{WEBHOOK_RETRY_S}s:1000"
            more = {"name": name, "owner": OWNER, "filter": [{"topic": TOPIC}], "retry": retry}
            await api.post("subscriptions", body=body | more)


async def application_token(api: CentralApi) -> str:
    """A new token for the application that publishes."""
    try:
        made = await api.post("tokens", APPLICATION, "rotate", body={"overlap_s": 0})
    except NotFound:
        made = await api.post("tokens", body={"name": APPLICATION, "role": "publisher"})
    return str(made["token"])


async def publish(api: CentralApi, clock: Clock, pause_s: float) -> None:
    """Publish a work order every few seconds, like an application."""
    for action, resource, attributes, payload in itertools.cycle(WORK_ORDERS):
        event = {
            "event_id": new_id(clock.now(), os.urandom(10)),
            "topic": TOPIC,
            "action": action,
            "resource": resource,
            "attributes": attributes,
            "payload": payload,
        }
        # Central may be restarting, or somebody archived the topic. An application would keep the event and try again.
        with suppress(FieldpostError):
            await api.post("events", body=event)
        await clock.sleep(pause_s)

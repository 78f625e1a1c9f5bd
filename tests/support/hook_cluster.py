"""Central nodes as processes, subscriptions over their API, and the receivers in the process of the test."""

import os
import shutil
from collections.abc import Sequence
from typing import Any

from fieldpost.central.ingest.publish import PublishOptions
from fieldpost.central.ingest.submit import Ingest
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.clock import SystemClock
from fieldpost.core.events.event import Event
from fieldpost.core.ids import new_ids
from fieldpost.testing import WebhookReceiver
from support.cluster import Cluster
from support.running_central import RunningCentral

KEY_FILE = "secret.key"
SOURCE = "app:shop"
ENVIRONMENT = {"FIELDPOST_WEBHOOKS__ALLOW_PLAIN": "true", "FIELDPOST_OUTBOUND__ALLOW": "127.0.0.0/8"}


class HookCluster:
    """Nodes of one centre that share a secret key, and receivers that verify what they get."""

    def __init__(self, cluster: Cluster, receiver: WebhookReceiver) -> None:
        self.cluster = cluster
        self.receiver = receiver

    async def start(self, **environment: str) -> RunningCentral:
        """One more node."""
        node = self.cluster.add(environment=ENVIRONMENT | environment)
        if self.cluster.nodes[0] is not node:
            node.folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.cluster.nodes[0].folder / KEY_FILE, node.folder / KEY_FILE)
        await node.start()
        return node

    async def subscribe(self, name: str, topic: str = "*", url: str | None = None, **settings: Any) -> str:
        """A subscription whose receiver knows its secret; its id."""
        given = {"url": url or self.receiver.url(name), **settings}
        body = {"name": name, "owner": "shop", "filter": [{"topic": topic}], "settings": given}
        made = await self.cluster.call("POST", "subscriptions", body)
        self.receiver.add(name, made["new_secret"])
        return str(made["subscription_id"])

    async def publish(self, count: int, topic: str = "orders.created", payload: str = '{"order": 17}') -> list[str]:
        """Events of one topic, straight into the database; their ids."""
        return await self.publish_topics([topic] * count, payload)

    async def publish_topics(self, topics: Sequence[str], payload: str) -> list[str]:
        """One event for each of these topics."""
        store = open_store(self.cluster.url)
        clock = SystemClock()
        try:
            ids = list(new_ids(clock.now(), os.urandom(10 * len(topics))))
            events = [
                Event(event_id=one, topic=topic, source=SOURCE, payload=payload)
                for one, topic in zip(ids, topics, strict=True)
            ]
            publisher = Ingest(store, clock, events=PublishOptions(open_topics=True)).publisher
            for start in range(0, len(events), 50):
                verdicts = await publisher.publish(SOURCE, events[start : start + 50])
                assert {verdict.verdict for verdict in verdicts} == {"accepted"}
        finally:
            await store.close()
        return ids

"""A site for tests of the centre: it sends over the real link, and what is not acked it sends again, as a site does."""

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import cycle
from types import TracebackType
from typing import Self

import aiohttp

from fieldpost.core.ids import new_ids
from fieldpost.link.codec import decode_as, encode
from fieldpost.link.messages import ACCEPTED, DUPLICATE, Ack, Item, Submit
from fieldpost.testing import MailServer

AGAIN_S = 0.1
ANSWER_S = 30.0
BODY = "No flow."
AHEAD_MAX = 400
"""How much may be on its way at a time: enough to keep every slot busy, and the machine not for long."""


class Sender:
    """Sends to the nodes by turns. What it was acked is in `acked`, how it was put off in `refused`."""

    def __init__(self, token: str, *urls: str) -> None:
        self.sent: set[str] = set()
        self.acked: set[str] = set()
        self.refused: Counter[str] = Counter()
        """HTTP statuses, or the kinds of error of connections that gave none."""
        self._urls = cycle(urls)
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._session: aiohttp.ClientSession | None = None
        self._seq = 0

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        self._session = aiohttp.ClientSession(headers=self._headers, timeout=timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    def use(self, *urls: str) -> None:
        """From now on send to these."""
        self._urls = cycle(urls)

    def items(self, count: int, *lists: str) -> list[Item]:
        """So many new notifications, for the lists by turns."""
        ids = new_ids(datetime.now(UTC), os.urandom(10 * count))
        names = cycle(lists)
        return [Item(i, next(names), f"Pump {number} stopped", BODY) for number, i in enumerate(ids)]

    async def send(self, count: int, *lists: str, batch: int = 100) -> list[str]:
        """Send so many and return when all are acked; their ids."""
        items = self.items(count, *lists)
        for start in range(0, count, batch):
            await self.deliver(items[start : start + batch])
        return [item.notification_id for item in items]

    async def send_until(self, stop: asyncio.Event, sink: MailServer, *lists: str, batch: int = 20) -> None:
        """Send batch after batch, none of them given up, until told to stop; never far ahead of what comes out."""
        while not stop.is_set():
            await self.deliver(self.items(batch, *lists))
            await sink.until(
                lambda: stop.is_set() or sink.mail_count >= len(self.acked) - AHEAD_MAX,
                timeout_s=60,
                what="the deliveries to keep up",
            )

    async def deliver(self, items: Sequence[Item]) -> None:
        """Offer these again and again until all are acked."""
        ack = await self.offer(items)
        while ack is None:
            await asyncio.sleep(AGAIN_S)
            ack = await self.offer(items)

    async def offer(self, items: Sequence[Item]) -> Ack | None:
        """Offer these once; the ack, or None when there was none."""
        assert self._session is not None
        self._seq += 1
        self.sent.update(item.notification_id for item in items)
        body = encode(Submit(self._seq, tuple(items)))
        try:
            async with self._session.post(f"{next(self._urls)}/link/v1/submit", data=body) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            self.refused[type(error).__name__] += 1
            return None
        if answer.status != 200:
            self.refused[str(answer.status)] += 1
            return None
        ack = decode_as(content, Ack)
        assert {result.verdict for result in ack.results} <= {ACCEPTED, DUPLICATE}
        self.acked.update(result.notification_id for result in ack.results)
        return ack

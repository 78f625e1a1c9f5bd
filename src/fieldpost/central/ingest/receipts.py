"""Receipts that providers send: find the target by its token, let the adapter read the callback, store the report.

The dispatcher applies reports (`dispatch/receipts.py`). An unknown token, one of another channel and one of an earlier
attempt get the same answer, which says nothing about what exists.
"""

from collections.abc import Mapping

import structlog

from fieldpost.central.secrets.keyring import Keyring
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import lists, receipts
from fieldpost.core.delivery.adapter import Adapter
from fieldpost.core.delivery.receipt import Callback, Receipts
from fieldpost.core.errors import NotFound
from fieldpost.core.text import is_label

log = structlog.get_logger()


class ReceiptIngest:
    """Stores the reports of providers."""

    def __init__(self, store: Store, adapters: Mapping[str, Adapter], keyring: Keyring) -> None:
        self._store = store
        self._adapters = adapters
        self._keyring = keyring

    async def receive(self, channel_name: str, token: str, callback: Callback) -> None:
        """Store the receipt in a callback; returns after the commit.

        Raises NotFound for an unknown token, InvalidInput or Denied as the adapter reads the callback, Unavailable if
        the store or the channel's secrets are.
        """
        is_known = is_label(channel_name) and is_label(token)
        found = await self._store.read(receipts.by_token, channel_name, token) if is_known else None
        channel = await self._store.read(lists.get_channel, channel_name) if found is not None else None
        adapter: object = self._adapters.get(channel.type) if channel is not None else None
        if found is None or channel is None or not isinstance(adapter, Receipts):
            raise NotFound("receipt.unknown", "this receipt is not expected")
        receipt = adapter.read_callback(self._keyring.open_owner(channel).settings, callback)
        if receipt.provider_id and found.provider_id and receipt.provider_id != found.provider_id:
            raise NotFound("receipt.unknown", "this receipt is not expected")
        await self._store.write(receipts.report, [(found, receipt)], now=self._store.now())
        self._store.wake.set()
        log.info("receipt.received", notification_id=found.notification_id, status=receipt.status.value)

"""All that people can do, by noun."""

from collections.abc import Mapping
from dataclasses import dataclass

from fieldpost.central.operate.accounts import Accounts
from fieldpost.central.operate.breakers import Breakers
from fieldpost.central.operate.bulk_acts import BulkActs
from fieldpost.central.operate.channels import Channels
from fieldpost.central.operate.intents import IntentOptions, Intents
from fieldpost.central.operate.lists import Lists
from fieldpost.central.operate.notifications import Notifications
from fieldpost.central.operate.secrets import Secrets
from fieldpost.central.operate.sites import Sites
from fieldpost.central.store.engine import Store
from fieldpost.central.store.keyring import Keyring
from fieldpost.clock import Clock
from fieldpost.core.adapter import Adapter


@dataclass(frozen=True, slots=True)
class Operate:
    notifications: Notifications
    bulk_acts: BulkActs
    lists: Lists
    channels: Channels
    secrets: Secrets
    breakers: Breakers
    sites: Sites
    intents: Intents
    accounts: Accounts

    @classmethod
    def over(
        cls,
        store: Store,
        adapters: Mapping[str, Adapter],
        clock: Clock,
        keyring: Keyring | None = None,
        intents: IntentOptions | None = None,
    ) -> "Operate":
        ring = keyring or Keyring()
        return cls(
            Notifications(store, clock),
            BulkActs(store, clock),
            Lists(store, adapters, clock),
            Channels(store, adapters, clock, ring),
            Secrets(store, clock, ring),
            Breakers(store, clock),
            Sites(store, clock),
            Intents(store, clock, intents),
            Accounts(store, clock),
        )

"""All that people can do, by noun."""

from collections.abc import Mapping
from dataclasses import dataclass

from fieldpost.central.access.account_options import AccountOptions
from fieldpost.central.access.accounts import Accounts
from fieldpost.central.access.logins import Logins
from fieldpost.central.access.oidc import Oidc
from fieldpost.central.access.passwords import Passwords
from fieldpost.central.access.tokens import Tokens
from fieldpost.central.access.users import Users
from fieldpost.central.operate.audit import Audit
from fieldpost.central.operate.breakers import Breakers
from fieldpost.central.operate.bulk_actions import BulkActs
from fieldpost.central.operate.channels import Channels
from fieldpost.central.operate.intents import IntentOptions, Intents
from fieldpost.central.operate.lists import Lists
from fieldpost.central.operate.notifications import Notifications
from fieldpost.central.operate.secrets import Secrets
from fieldpost.central.operate.sites import Sites
from fieldpost.central.secrets.keyring import Keyring
from fieldpost.central.store.engine.store import Store
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
    logins: Logins
    users: Users
    tokens: Tokens
    audit: Audit
    oidc: Oidc | None = None
    """Login by an identity provider, where one is set."""

    @classmethod
    def over(
        cls,
        store: Store,
        adapters: Mapping[str, Adapter],
        clock: Clock,
        keyring: Keyring | None = None,
        intents: IntentOptions | None = None,
        accounts: AccountOptions | None = None,
        passwords: Passwords | None = None,
    ) -> "Operate":
        ring = keyring or Keyring()
        passwords = passwords or Passwords()
        return cls(
            Notifications(store, clock),
            BulkActs(store, clock),
            Lists(store, adapters, clock),
            Channels(store, adapters, clock, ring),
            Secrets(store, clock, ring),
            Breakers(store, clock),
            Sites(store, clock),
            Intents(store, clock, intents),
            Accounts(store, clock, passwords, accounts),
            Logins(store, clock, passwords, accounts),
            Users(store, clock, accounts),
            Tokens(store, clock),
            Audit(store, clock),
        )

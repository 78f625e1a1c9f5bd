"""All actions of people, by noun."""

from collections.abc import Mapping
from dataclasses import dataclass

from fieldpost.central.access.account_options import AccountOptions
from fieldpost.central.access.accounts import Accounts
from fieldpost.central.access.logins import Logins
from fieldpost.central.access.oidc import Oidc
from fieldpost.central.access.passwords import Passwords
from fieldpost.central.access.refusals import Refusals
from fieldpost.central.access.signatures import CookieSigner
from fieldpost.central.access.tokens import TokenActions
from fieldpost.central.access.users import Users
from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.operate.audit import AuditExport
from fieldpost.central.operate.breakers import Breakers
from fieldpost.central.operate.bulk_actions import BulkActionRunner
from fieldpost.central.operate.channels import ChannelActions
from fieldpost.central.operate.intents import IntentOptions, Intents
from fieldpost.central.operate.list_files import ListFiles
from fieldpost.central.operate.lists import Lists
from fieldpost.central.operate.notifications import NotificationActions
from fieldpost.central.operate.recovery import Recovery
from fieldpost.central.operate.routes import RouteActions
from fieldpost.central.operate.secrets import Secrets
from fieldpost.central.operate.sites import SiteActions
from fieldpost.central.operate.subscriptions import SubscriptionActions
from fieldpost.central.operate.templates import TemplateActions
from fieldpost.central.operate.topics import TopicActions
from fieldpost.central.operate.zgw.abonnementen import Abonnementen
from fieldpost.central.operate.zgw.clients import ZgwClients
from fieldpost.central.operate.zgw.kanalen import Kanalen
from fieldpost.central.operate.zgw.options import ZgwOptions
from fieldpost.central.rendering.pool import RenderPool
from fieldpost.central.rendering.waiting import WAIT_DAYS
from fieldpost.central.secrets.keyring import Keyring
from fieldpost.central.store.engine.store import Store
from fieldpost.clock import Clock
from fieldpost.core.delivery.adapter import Adapter


@dataclass(frozen=True, slots=True)
class Operate:
    notifications: NotificationActions
    bulk_actions: BulkActionRunner
    lists: Lists
    list_files: ListFiles
    channels: ChannelActions
    subscriptions: SubscriptionActions
    recovery: Recovery
    secrets: Secrets
    breakers: Breakers
    sites: SiteActions
    intents: Intents
    accounts: Accounts
    logins: Logins
    users: Users
    tokens: TokenActions
    audit: AuditExport
    refusals: Refusals
    topics: TopicActions
    routes: RouteActions
    templates: TemplateActions
    zgw_clients: ZgwClients
    kanalen: Kanalen
    abonnementen: Abonnementen
    oidc: Oidc | None = None
    """Login through an identity provider, if one is configured."""

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
        webhooks: WebhookOptions | None = None,
        pool: RenderPool | None = None,
        template_wait_days: float = WAIT_DAYS,
        zgw: ZgwOptions | None = None,
        public_url: str = "",
    ) -> "Operate":
        ring = keyring or Keyring()
        passwords = passwords or Passwords()
        refusals = Refusals(store, clock)
        return cls(
            NotificationActions(store, clock),
            BulkActionRunner(store, clock),
            Lists(store, adapters, clock, keyring),
            ListFiles(store, adapters, clock, keyring),
            ChannelActions(store, adapters, clock, ring),
            SubscriptionActions(store, adapters, clock, ring, webhooks),
            Recovery(store, clock),
            Secrets(store, clock, ring),
            Breakers(store, clock),
            SiteActions(store, clock),
            Intents(store, clock, intents),
            Accounts(store, clock, passwords, accounts),
            Logins(store, clock, passwords, accounts, refusals, CookieSigner(ring.cookie_keys)),
            Users(store, clock, accounts),
            TokenActions(store, clock),
            AuditExport(store, clock),
            refusals,
            TopicActions(store, clock),
            RouteActions(store, clock),
            TemplateActions(store, adapters, clock, pool or RenderPool(), template_wait_days, public_url),
            ZgwClients(store, clock, ring),
            Kanalen(store, clock),
            Abonnementen(store, adapters, clock, ring, webhooks, zgw),
        )

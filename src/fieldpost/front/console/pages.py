"""The table of all pages.

Each page is a module with `ROUTES`, a `MENU` line if it is in the menu, and templates that extend `base.html`. To add
a page, add its module below.
"""

from fieldpost.front.console import (
    audit,
    bulk_actions,
    channels,
    health,
    list_import,
    lists,
    live,
    new_bulk_action,
    notification,
    notifications,
    parked_groups,
    settings,
)
from fieldpost.front.console.access import account, oidc, sessions, tokens, users, zgw_clients
from fieldpost.front.console.events import deliveries, events, routes, subscriptions, templates, topics
from fieldpost.front.console.kit.request import MenuLine, PageRoute
from fieldpost.front.console.sites import cached_calls, intents, site, site_queries, sites

MODULES = (
    *(health, notifications, notification, new_bulk_action, bulk_actions, parked_groups, events, cached_calls, intents),
    *(sites, site_queries, site, lists, list_import, channels, topics, routes, templates, subscriptions, deliveries),
    *(audit, users, tokens, zgw_clients, settings, account, sessions, oidc, live),
)
"""In menu order."""

PAGES: tuple[PageRoute, ...] = tuple(route for module in MODULES for route in module.ROUTES)
MENU: tuple[MenuLine, ...] = tuple(module.MENU for module in MODULES if hasattr(module, "MENU"))

STATIC = "/static/{name:path}"
"""Style sheets, scripts and images; served without login."""

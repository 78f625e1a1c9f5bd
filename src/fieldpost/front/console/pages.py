"""The console as one table of pages.

A page is one module beside this one, with its `ROUTES` and, if it stands in the menu, its `MENU` line; and its
templates, which extend `base.html`. To add one, add its module to the list below.
"""

from fieldpost.front.console import (
    account,
    audit,
    bulk_acts,
    bulk_ask,
    channels,
    health,
    intents,
    list_import,
    lists,
    live,
    notification,
    oidc,
    outbox,
    parked_groups,
    sessions,
    settings,
    site,
    site_calls,
    site_looks,
    sites,
    tokens,
    users,
)
from fieldpost.front.console.visit import MenuLine, PageRoute

MODULES = (
    health,
    outbox,
    notification,
    bulk_ask,
    bulk_acts,
    parked_groups,
    site_calls,
    intents,
    sites,
    site_looks,
    site,
    lists,
    list_import,
    channels,
    audit,
    users,
    tokens,
    settings,
    account,
    sessions,
    oidc,
    live,
)
"""In the order in which the menu shows them."""

PAGES: tuple[PageRoute, ...] = tuple(route for module in MODULES for route in module.ROUTES)
MENU: tuple[MenuLine, ...] = tuple(module.MENU for module in MODULES if hasattr(module, "MENU"))

STATIC = "/static/{name:path}"
"""Style sheet, scripts and pictures, which the login page needs: for anyone."""

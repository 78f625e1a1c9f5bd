"""Fieldpost: machines at sites notify people over links that fail; at-least-once, never silently lost.

A script at a site needs one name from here:

    from fieldpost import Site

an application that publishes events another:

    from fieldpost import Outbox

and one that receives webhooks a third:

    from fieldpost import verify_webhook

The others are what their calls raise and return. Each is loaded on first use, so that an application which only imports
``fieldpost.core`` or ``fieldpost.outbox`` does not load the libraries a site needs; `__init__.pyi` tells editors and
type checkers what they are.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = [
    "CallId",
    "CallRecord",
    "CallStatus",
    "ConfigError",
    "Conflict",
    "FieldpostError",
    "InvalidInput",
    "InvalidWebhook",
    "NotFound",
    "NotificationId",
    "NotificationStatus",
    "OperationFailed",
    "Outbox",
    "Site",
    "Unavailable",
    "VerifiedWebhook",
    "__version__",
    "verify_webhook",
]

_HOMES = {
    "Site": "fieldpost.site.site",
    "NotificationId": "fieldpost.core.ids",
    "NotificationStatus": "fieldpost.site.notify",
    "CallId": "fieldpost.core.ids",
    "CallRecord": "fieldpost.core.sites.message",
    "CallStatus": "fieldpost.core.sites.message",
    "Outbox": "fieldpost.outbox.outbox",
    "verify_webhook": "fieldpost.outbox.receiver",
    "InvalidWebhook": "fieldpost.core.events.signature",
    "VerifiedWebhook": "fieldpost.core.events.signature",
} | dict.fromkeys(
    ("ConfigError", "Conflict", "FieldpostError", "InvalidInput", "NotFound", "OperationFailed", "Unavailable"),
    "fieldpost.core.errors",
)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

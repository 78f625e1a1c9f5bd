"""Fieldpost: machines at sites notify people over links that fail; at-least-once, never silently lost.

A script at a site needs one name from here:

    from fieldpost import Site

It is loaded on first use, so that an application which only imports ``fieldpost.core`` or ``fieldpost.outbox`` does not
load the libraries a site needs.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = ["Site", "__version__"]

_HOMES = {"Site": "fieldpost.site.site"}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

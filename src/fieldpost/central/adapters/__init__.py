"""Delivery adapters, one folder each. Stateless, without database access."""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from inspect import signature
from typing import Any

import structlog

from fieldpost.core.delivery.adapter import Adapter
from fieldpost.outbound.outbound import Outbound

GROUP = "fieldpost.adapters"

log = structlog.get_logger()


class NotInstalled(Exception):
    """An adapter needs an extra of this package that is not installed."""


def load(outbound: Outbound | None = None, **shared: object) -> dict[str, Adapter]:
    """Load all adapters, by type, from their entry points. An adapter with a keyword `outbound` gets the process's
    guarded HTTP client, and likewise any other shared object whose name it has as a keyword.

    An adapter that fails to load is logged and left out: a broken third-party package must not stop mail. If two
    adapters have the same type, ours wins, else the one whose entry point name sorts first.
    """
    adapters: dict[str, Adapter] = {}
    for entry in sorted(entry_points(group=GROUP), key=_ours_first):
        try:
            adapter = _make(entry, {**shared, **({"outbound": outbound} if outbound else {})})
        except NotInstalled as missing:
            log.info("adapter.left_out", entry_point=entry.name, value=entry.value, reason=str(missing))
            continue
        except Exception:
            log.exception("adapter.left_out", entry_point=entry.name, value=entry.value)
            continue
        if adapter.type in adapters:
            log.error("adapter.left_out", entry_point=entry.name, value=entry.value, reason="duplicate type")
            continue
        adapters[adapter.type] = adapter
    return adapters


def _ours_first(entry: EntryPoint) -> tuple[bool, str, str]:
    return not entry.module.startswith(f"{__name__}."), entry.name, entry.value


def _make(entry: EntryPoint, shared: Mapping[str, object]) -> Adapter:
    kind: Any = entry.load()
    wanted = signature(kind).parameters
    adapter: Adapter = kind(**{name: value for name, value in shared.items() if name in wanted})
    if adapter.type != entry.name:
        raise TypeError(f"the adapter's type is {adapter.type!r}, but its entry point is named {entry.name!r}")
    if not adapter.deadline_s > 0:
        raise TypeError(f"deadline_s must be greater than 0, got {adapter.deadline_s!r}")
    if not isinstance(adapter.secrets, frozenset):
        # Without the declaration its secrets would be stored and shown in clear text.
        raise TypeError("secrets must be a frozenset of the names of its secret settings")
    for method in ("check_settings", "check_target", "target_key", "deliver", "close"):
        if not callable(getattr(adapter, method, None)):
            raise TypeError(f"the adapter has no {method}()")
    return adapter

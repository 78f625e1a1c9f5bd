"""Queries of templates: the current ones, versions, and events that wait for one."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import templates, withheld
from fieldpost.central.store.events.withheld import WithheldGroup
from fieldpost.core.errors import NotFound
from fieldpost.core.events.template import Template
from fieldpost.core.text import is_label

__all__ = ["TemplateOverview", "TemplateReader", "WithheldGroup"]

VERSIONS_SHOWN = 100
WAITING_DAYS = 7.0


@dataclass(frozen=True, slots=True)
class TemplateOverview:
    """The current templates, and the events without one."""

    templates: tuple[Template, ...]
    waiting: tuple[WithheldGroup, ...]
    """Events that wait for a template, by topic and list type; without those too old to get a notification."""


class TemplateReader:
    """Reads templates."""

    def __init__(self, store: Store, wait_days: float = WAITING_DAYS) -> None:
        self._store = store
        self._wait = timedelta(days=wait_days)

    async def all(self) -> TemplateOverview:
        """The current templates by topic and type."""
        return await self._store.read(_all, self._wait, now=self._store.now())

    async def versions(self, topic: str, type_: str = "") -> list[Template]:
        """The versions of a template, newest first. Raises NotFound if there is none, current or not."""
        is_name = is_label(topic) and (not type_ or is_label(type_))
        found = await self._store.read(templates.versions, topic, type_, VERSIONS_SHOWN) if is_name else []
        if not found:
            of_type = f" for type {type_[:64]!r}" if type_ else ""
            raise NotFound("template.unknown", f"topic {topic[:64]!r} has no template{of_type}")
        return found


def _all(conn: Connection, wait: timedelta, *, now: datetime | None) -> TemplateOverview:
    since = database_time(conn, now) - wait
    return TemplateOverview(tuple(templates.current(conn).values()), tuple(withheld.groups(conn, since)))

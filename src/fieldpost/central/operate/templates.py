"""Templates: save, preview and remove; and the notifications of events that waited for one."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from fieldpost.central.access.audit_trail import Actions, commit, present, was_changed
from fieldpost.central.rendering.composer import RenderJob
from fieldpost.central.rendering.pool import RenderPool
from fieldpost.central.rendering.waiting import WAIT_DAYS, create_waiting
from fieldpost.central.store.engine.statement import database_time
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import events, templates, topics, withheld
from fieldpost.central.store.notifications import audit, lists
from fieldpost.clock import Clock
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditEntry
from fieldpost.core.delivery.adapter import Adapter, Envelope, TextCosts
from fieldpost.core.errors import Conflict, InvalidInput, NotFound, Unavailable
from fieldpost.core.events.event import Event
from fieldpost.core.events.template import (
    Rendered,
    RenderFailure,
    Template,
    check_template,
    unknown_by_schema,
    variables_of,
)
from fieldpost.core.events.topic import Topic
from fieldpost.core.ids import NotificationId, is_id
from fieldpost.core.notification import Severity

EXAMPLE_ID = "00000000-0000-7000-8000-000000000000"


@dataclass(frozen=True, slots=True)
class SavedTemplate:
    """A saved template, and how many events waited for it."""

    template: Template
    waiting: int
    """Events that get their notifications now; those that are too old are not counted."""


@dataclass(frozen=True, slots=True)
class TemplatePreview:
    """A rendered template, or the reason why it cannot be rendered."""

    rendered: Rendered | None
    error: str | None = None
    variable: str | None = None
    """The unknown variable, if that is the reason."""
    costs: tuple[str, ...] = ()
    """The cost of the text on channels that bill by its length: `sms: 2 segments of GSM-7 per number`."""

    @property
    def subject(self) -> str | None:
        return self.rendered.subject if self.rendered else None

    @property
    def body(self) -> str | None:
        return self.rendered.body if self.rendered else None

    @property
    def severity(self) -> Severity | None:
        return self.rendered.severity if self.rendered else None

    @property
    def incident(self) -> str | None:
        return self.rendered.incident if self.rendered else None

    @property
    def is_cleared(self) -> bool:
        return self.rendered is not None and self.rendered.is_cleared


class TemplateActions(Actions):
    """Actions on templates."""

    def __init__(
        self,
        store: Store,
        adapters: Mapping[str, Adapter],
        clock: Clock,
        pool: RenderPool,
        wait_days: float = WAIT_DAYS,
        public_url: str = "",
    ) -> None:
        """`public_url` is the beginning of the links in notifications."""
        super().__init__(store, clock)
        self._adapters = adapters
        self._public_url = public_url.rstrip("/")
        self._pool = pool
        self._wait = timedelta(days=wait_days)

    @property
    def types(self) -> list[str]:
        """The list types that may have their own templates."""
        return sorted(self._adapters)

    async def save(self, actor: Actor, template: Template, seen: int | None) -> SavedTemplate:
        """Save a new version; `seen` is the current version that the caller saw, None if there is no template.

        The template must render with the topic's example, or use only members that its schema describes. Events that
        waited for it get their notifications: the first ones in this transaction, the rest soon after.
        """
        entry = self._begin(actor, Role.ADMIN, "template.save", f"{template.topic[:128]}:{template.type[:64]}")
        check_template(template)
        if template.type and template.type not in self._adapters:
            known = ", ".join(sorted(self._adapters))
            raise InvalidInput(
                "type.unknown", f"no adapter of type {template.type!r}; known types: {known}", field="type"
            )
        await self._check_variables(template)
        made = replace(template, created_at=entry.occurred_at, created_by=actor.name)
        subject = f"the template of topic {template.topic!r}"
        saved = await commit(
            self._store, subject, _save, made, seen, entry, list(self._adapters), self._wait, now=self._store.now()
        )
        self._store.wake.set()
        return saved

    async def remove(self, actor: Actor, topic: str, type_: str, seen: int) -> None:
        """End the use of a template; events of its topic wait from now on. Its versions stay."""
        entry = self._begin(actor, Role.ADMIN, "template.remove", f"{topic[:128]}:{type_[:64]}")
        await commit(self._store, f"the template of topic {topic!r}", _remove, topic, type_, seen, entry)

    async def preview(self, template: Template, event_id: str | None = None) -> TemplatePreview:
        """Render an unsaved template with a past event, or with the example of its topic; raises InvalidInput without
        either."""
        check_template(template)
        event = await self._sample(template.topic, event_id)
        if event is None:
            raise InvalidInput(
                "template.no_example",
                f"topic {template.topic!r} has no example payload to render",
                hint="add an example to the topic, or choose a past event",
                field="event_id",
            )
        shown = await self._render(template, event)
        if shown.rendered is None:
            return shown
        return replace(shown, costs=await self._costs(template.type, shown.rendered))

    async def _costs(self, type_: str, rendered: Rendered) -> tuple[str, ...]:
        """The costs on lists of this type; for all types, on those that have a channel."""
        billing: dict[str, TextCosts] = {
            name: adapter
            for name, adapter in self._adapters.items()
            if type_ in ("", name) and isinstance(adapter, TextCosts)
        }
        if not billing:
            return ()
        channels = await self._store.read(lists.all_channels)
        found = []
        for name in sorted(billing):
            of_type = sorted((c for c in channels if c.type == name), key=lambda c: not c.is_default)
            if of_type or type_:
                sample = self._sample_envelope(name, rendered, of_type[0].settings if of_type else {})
                found.append(f"{name}: {billing[name].text_cost(sample)}")
        return tuple(found)

    def _sample_envelope(self, list_name: str, rendered: Rendered, settings: Mapping[str, object]) -> Envelope:
        return Envelope(
            notification_id=NotificationId(EXAMPLE_ID),
            list_name=list_name,
            subject=rendered.subject,
            body=rendered.body,
            targets=(),
            settings=settings,
            dated=self._clock.now(),
            gate=lambda: None,
            link=f"{self._public_url}/notifications/{EXAMPLE_ID}" if self._public_url else None,
        )

    async def _render(self, template: Template, event: Event) -> TemplatePreview:
        [result] = await self._pool.render([RenderJob(template, variables_of(event))])
        match result:
            case Rendered():
                return TemplatePreview(result)
            case RenderFailure(error, variable, is_ours):
                if is_ours:
                    raise Unavailable("template.renderer", error)
                return TemplatePreview(None, error, variable)

    async def _sample(self, topic_name: str, event_id: str | None) -> Event | None:
        if event_id:
            recorded = await self._store.read(events.get, event_id) if is_id(event_id) else None
            if recorded is None or recorded.event.topic != topic_name:
                raise NotFound("event.unknown", f"there is no such event of topic {topic_name!r}")
            return recorded.event
        topic = await self._store.read(topics.get, topic_name)
        return _example(topic) if topic is not None else None

    async def _check_variables(self, template: Template) -> None:
        names = await self._pool.names(template)
        foreign = next((n for n in names if n.split(".")[0] not in ("payload", "event", *_FUNCTIONS)), None)
        if foreign is not None:
            raise _unknown(template, foreign, "templates have the variables payload and event")
        topic = await self._store.read(topics.get, template.topic)
        example = _example(topic) if topic is not None else None
        if example is not None:
            shown = await self._render(template, example)
            if shown.variable is not None:
                raise _unknown(template, shown.variable, f"the example of topic {template.topic!r} has no such member")
            if shown.error is not None:
                raise InvalidInput("template.invalid", f"with the example of the topic: {shown.error}", field="body")
        elif topic is not None:
            members = [name for name in names if name.startswith("payload.")]
            if (unknown := unknown_by_schema(topic, members)) is not None:
                raise _unknown(template, unknown, f"the schema of topic {template.topic!r} has no such member")


_FUNCTIONS = ("range", "dict", "namespace")


def _unknown(template: Template, variable: str, why: str) -> InvalidInput:
    found = re.compile(rf"(?<![\w.]){re.escape(variable)}")
    field = next((part for part, source in template.sources.items() if found.search(source)), "body")
    return InvalidInput("template.unknown_variable", f"unknown variable {variable!r:.120}: {why}", field=field)


def _example(topic: Topic) -> Event | None:
    if topic.example is None:
        return None
    members = json.loads(topic.example)
    attributes = {name: str(members[name]) for name in topic.attributes if isinstance(members.get(name), str | int)}
    return Event(
        event_id=EXAMPLE_ID, topic=topic.name, source="app:example", payload=topic.example, attributes=attributes
    )


def _save(
    conn: Connection,
    made: Template,
    seen: int | None,
    entry: AuditEntry,
    types: list[str],
    wait: timedelta,
    *,
    now: datetime | None,
) -> SavedTemplate:
    made = replace(made, version=templates.latest_number(conn, made.topic, made.type) + 1)
    if not templates.add_version(conn, made, seen):
        found = templates.get(conn, made.topic, made.type)
        if seen is None and found is not None:
            raise Conflict(
                "template.exists", f"topic {made.topic!r} already has this template", hint="give its version"
            )
        raise was_changed("template", made.topic, found.version if found else 0)
    since = database_time(conn, now) - wait
    audit.add(conn, [replace(entry, extra={**(entry.extra or {}), "version": made.version})])
    waiting = sum(
        one.count
        for one in withheld.groups(conn, since)
        if one.topic == made.topic and (one.type == made.type or not made.type)
    )
    create_waiting(conn, wait, now=now)
    return SavedTemplate(made, waiting)


def _remove(conn: Connection, topic: str, type_: str, seen: int, entry: AuditEntry) -> None:
    found = present(templates.get(conn, topic, type_), "template", topic)
    if not templates.remove(conn, topic, type_, seen):
        raise was_changed("template", topic, found.version)
    audit.add(conn, [entry])

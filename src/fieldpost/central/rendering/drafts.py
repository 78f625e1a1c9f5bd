"""Completing drafts: text and targets of claimed notifications without them, by the current route and template."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from fieldpost.central.rendering.composer import Composed, Composer, Composition
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.events import events, routed, routes, templates
from fieldpost.central.store.events.routed import CompletedDraft
from fieldpost.central.store.notifications import targets
from fieldpost.central.store.notifications.claims import Claimed
from fieldpost.core.delivery.holds import HoldKind
from fieldpost.core.delivery.outcome import Evidence, Held, PermanentFailure
from fieldpost.core.events.event import RecordedEvent
from fieldpost.core.events.route import EventRoute
from fieldpost.core.events.template import Template, template_for
from fieldpost.core.notification import Severity, Target

PHASE = "render"


@dataclass(frozen=True, slots=True)
class _Sources:
    """The route, template and event of a draft."""

    events: dict[str, RecordedEvent]
    routes: dict[str, EventRoute]
    """By notification id."""
    templates: dict[tuple[str, str], Template]


Attemptable = tuple[Claimed, PermanentFailure | Held | None]
"""A notification and, if its text could not be made, the outcome of its attempt."""


class DraftCompleter:
    """Renders the drafts that a node has claimed."""

    def __init__(self, store: Store, node_id: str, composer: Composer) -> None:
        self._store = store
        self._node_id = node_id
        self._composer = composer

    async def complete(self, claimed: Sequence[Claimed]) -> dict[str, Attemptable]:
        """The drafts among these by id: completed, or as they are with the outcome of their attempt."""
        drafts = [one for one in claimed if one.notification.is_draft]
        if not drafts:
            return {}
        sources = await self._store.read(
            _load, [one.notification.notification_id for one in drafts], _event_ids(drafts)
        )
        wanted: dict[str, Composition] = {}
        found: dict[str, Attemptable] = {}
        for one in drafts:
            composition = _composition(one, sources)
            if isinstance(composition, PermanentFailure):
                found[one.notification.notification_id] = one, composition
            else:
                wanted[one.notification.notification_id] = composition
        composed = dict(zip(wanted, await self._composer.compose(list(wanted.values())), strict=True))
        by_id = {str(one.notification.notification_id): one for one in drafts}
        found |= {i: (by_id[i], _failure(result)) for i, result in composed.items() if result.rendered is None}
        return found | await self._write(by_id, wanted, composed)

    async def _write(
        self, by_id: dict[str, Claimed], wanted: dict[str, Composition], composed: dict[str, Composed]
    ) -> dict[str, Attemptable]:
        made = []
        for i, c in composed.items():
            if c.rendered is not None:
                one, template = by_id[i], wanted[i].template
                subject = c.rendered.subject or one.notification.subject
                text = CompletedDraft(
                    notification_id=i,
                    subject=subject,
                    body=c.rendered.body,
                    address=c.address,
                    template_type=template.type,
                    template_version=template.version,
                    severity=c.rendered.severity.value if c.rendered.severity else None,
                    incident=c.rendered.incident,
                    is_cleared=c.rendered.is_cleared,
                )
                made.append((text, one.token))
        fixed = await self._store.write(_complete, self._node_id, made) if made else {}
        texts = {draft.notification_id: draft for draft, _ in made}
        return {i: (_completed(by_id[i], text, fixed.get(i, ())), None) for i, text in texts.items()}


def _completed(one: Claimed, text: CompletedDraft, fixed: Sequence[Target]) -> Claimed:
    n = replace(
        one.notification,
        subject=text.subject,
        body=text.body,
        targets=tuple(fixed),
        is_draft=False,
        severity=Severity(text.severity) if text.severity else one.notification.severity,
        incident=text.incident,
        is_cleared=text.is_cleared,
    )
    return replace(one, notification=n)


def _event_ids(drafts: Sequence[Claimed]) -> list[str]:
    return [i for one in drafts if (i := one.notification.event_id) is not None]


def _load(conn: Connection, ids: Sequence[str], event_ids: Sequence[str]) -> _Sources:
    by = routed.routed_by(conn, ids)
    found = routes.these(conn, {one.route_id for one in by.values()})
    return _Sources(
        events.these(conn, event_ids),
        {i: route for i, one in by.items() if (route := found.get(one.route_id)) is not None},
        templates.current(conn),
    )


def _complete(conn: Connection, owner: str, made: Sequence[tuple[CompletedDraft, int]]) -> dict[str, list[Target]]:
    done = routed.complete(conn, owner, made)
    return targets.targets_of(conn, sorted(done))


def _composition(one: Claimed, sources: _Sources) -> Composition | PermanentFailure:
    n = one.notification
    recorded, route = sources.events.get(n.event_id or ""), sources.routes.get(n.notification_id)
    if recorded is None or route is None:
        return _failed("its event or its route no longer exists")
    template = template_for(sources.templates, recorded.event.topic, n.type)
    if template is None:
        return _failed(f"there is no template for topic {recorded.event.topic!r} and lists of type {n.type!r}")
    return Composition(recorded.event, route, n.type, template)


def _failure(composed: Composed) -> PermanentFailure | Held:
    if composed.is_ours:
        return Held(composed.error or "", phase=PHASE, evidence=Evidence.NONE, kind=HoldKind.OUR_SIDE)
    return _failed(composed.error or "")


def _failed(error: str) -> PermanentFailure:
    return PermanentFailure(error, phase=PHASE, evidence=Evidence.NONE)

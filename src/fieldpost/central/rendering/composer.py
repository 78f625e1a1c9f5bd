"""Composing: the text and the address of a notification that a route creates from an event."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fieldpost.core.delivery.adapter import Adapter
from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.event import Event
from fieldpost.core.events.members import address_of
from fieldpost.core.events.route import EventRoute
from fieldpost.core.events.template import Rendered, RenderFailure, Template, variables_of
from fieldpost.core.text import truncate


@dataclass(frozen=True, slots=True)
class RenderJob:
    """A template and its variables, as JSON."""

    template: Template
    variables: str


class TemplateRenderer(Protocol):
    """Renders templates; `pool.RenderPool` does so in child processes."""

    async def render(self, jobs: Sequence[RenderJob]) -> list[Rendered | RenderFailure]:
        """One result per job, in order."""


class NoRenderer:
    """For a process without child processes: every notification becomes a draft."""

    async def render(self, jobs: Sequence[RenderJob]) -> list[Rendered | RenderFailure]:
        return [RenderFailure("this process does not render templates", is_ours=True) for _ in jobs]


@dataclass(frozen=True, slots=True)
class Composition:
    """An event, the route that it takes, the type of the route's list, and the template."""

    event: Event
    route: EventRoute
    type: str
    template: Template


@dataclass(frozen=True, slots=True)
class Composed:
    """The result: a text with the address of the person it is for, or the reason why there is none."""

    address: str | None
    """None without `to`: the list's targets are notified."""
    rendered: Rendered | None = None
    error: str | None = None
    is_ours: bool = False
    """The renderer failed, not template or payload."""


class Composer:
    """Renders templates and reads addresses."""

    def __init__(self, renderer: TemplateRenderer, adapters: Mapping[str, Adapter]) -> None:
        self._renderer = renderer
        self._adapters = adapters

    async def compose(self, wanted: Sequence[Composition]) -> list[Composed]:
        """One result per composition, in order. A template is rendered once per event, however many routes use it."""
        jobs: dict[tuple[str, str, int], RenderJob] = {}
        for one in wanted:
            key = _key(one)
            if key not in jobs:
                jobs[key] = RenderJob(one.template, variables_of(one.event))
        results = dict(zip(jobs, await self._renderer.render(list(jobs.values())), strict=True)) if jobs else {}
        return [self._composed(one, results[_key(one)]) for one in wanted]

    def _composed(self, one: Composition, result: Rendered | RenderFailure) -> Composed:
        address = None
        if one.route.to is not None:
            try:
                address = self._check_address(one, address_of(one.event.payload, one.route.to))
            except InvalidInput as error:
                return Composed(None, error=truncate(f"route {one.route.name!r}: {error.message}"))
        if isinstance(result, Rendered):
            return Composed(address, result)
        reason = result.error if result.is_ours else f"{one.template.label}: {result.error}"
        return Composed(address, error=truncate(reason), is_ours=result.is_ours)

    def _check_address(self, one: Composition, address: str) -> str:
        adapter = self._adapters.get(one.type)
        if adapter is None:
            message = f"no delivery adapter for type {one.type!r} of list {one.route.list_name!r}"
            raise InvalidInput("type.unknown", message)
        try:
            return adapter.check_target(address)
        except InvalidInput as error:
            message = f"the payload member {one.route.to!r} is not a valid address: {error.message}"
            raise InvalidInput("route.address", message) from None


def _key(one: Composition) -> tuple[str, str, int]:
    return one.event.event_id, one.template.type, one.template.version

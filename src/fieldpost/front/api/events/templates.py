"""`/templates`: subject, body and alarm fields of the notifications that routes make of events."""

from collections.abc import Sequence

from fieldpost.central.operate.templates import SavedTemplate, TemplatePreview
from fieldpost.central.watch.events.templates import TemplateOverview, WithheldGroup
from fieldpost.core.events.template import Template
from fieldpost.front.http.call import Call
from fieldpost.link.http.body import Body, RowVersion
from fieldpost.link.http.endpoint_spec import TEXT, Parameter, spec
from fieldpost.link.http.view import View, ViewField, listing

OF_TYPE = (Parameter("type", TEXT, "List type; without it the template for all types without their own"),)


class TemplateParts(Body, frozen=True, kw_only=True):
    type: str = ""
    """The list type that the template is for; empty for all types without their own."""
    subject: str
    body: str
    severity: str = ""
    """Renders to `info`, `warning`, `error` or `critical`; where it renders to nothing, the list's severity applies."""
    incident: str = ""
    """Renders to the subject of the alarm, which ties a recovery to its failure; nothing for none."""
    is_cleared: str = ""
    """Renders to `true` where the event reports that the incident is over, else to `false` or nothing."""


class NewTemplate(TemplateParts, frozen=True, kw_only=True):
    """A version of a template. Variables are `payload` and `event`."""

    version: RowVersion | None = None
    """The current version that the caller has seen; null if there is no template."""


class TriedTemplate(TemplateParts, frozen=True, kw_only=True):
    """A template to render without saving it."""

    topic: str
    event_id: str | None = None
    """A past event of the topic; without it the topic's example is used."""


class RemovedTemplate(Body, frozen=True, kw_only=True):
    """The template to remove, at the version that the caller has seen."""

    version: RowVersion
    type: str = ""


TEMPLATE = View(
    "TemplateView",
    Template,
    "topic type version is_current subject body severity incident is_cleared created_at created_by",
    description="A version of a template. `type` is empty for all list types without their own template.",
)
WAITING = View("WaitingEventsView", WithheldGroup, "topic type count oldest")
TEMPLATES = View(
    "TemplatesView",
    TemplateOverview,
    ViewField("templates", view=TEMPLATE),
    ViewField("waiting", view=WAITING),
    description="The current templates, and how many events wait for one, by topic and list type.",
)
VERSIONS = listing("TemplateVersionsView", "versions", TEMPLATE)
SAVED = View(
    "SavedTemplateView",
    SavedTemplate,
    ViewField("template", view=TEMPLATE),
    "waiting",
    description="`waiting` is the number of events that waited for the template and get their notifications now.",
)
PREVIEW = View(
    "TemplatePreviewView",
    TemplatePreview,
    "subject body severity incident is_cleared error variable costs",
    description="The rendered parts, or `error`; `variable` is the unknown variable, if that is the reason. `costs` has"
    " a line for each channel type that bills by the length of a text, such as the segments of an SMS.",
)


@spec(TEMPLATES)
async def show_all(call: Call) -> TemplateOverview:
    """List the current templates, and the events that wait for one."""
    return await call.watch.templates.all()


@spec(VERSIONS, query=OF_TYPE)
async def versions(call: Call) -> Sequence[Template]:
    """List the versions of a template, newest first."""
    return await call.watch.templates.versions(call.path("topic"), call.parameter("type", ""))


@spec(SAVED, body=NewTemplate, problems=(409,))
async def save(call: Call) -> SavedTemplate:
    """Save a new version of a template. It must render with the topic's example; without an example, its variables are
    checked against the topic's schema. Events that waited for the template get their notifications."""
    given = await call.read(NewTemplate)
    template = _template(call.path("topic"), given)
    return await call.operate.templates.save(call.actor, template, given.version)


@spec(PREVIEW, body=TriedTemplate)
async def preview(call: Call) -> TemplatePreview:
    """Render a template with a past event or with the topic's example. Nothing is saved."""
    given = await call.read(TriedTemplate)
    template = _template(given.topic, given)
    return await call.operate.templates.preview(template, given.event_id)


@spec(VERSIONS, body=RemovedTemplate, problems=(409,))
async def remove(call: Call) -> Sequence[Template]:
    """End the use of a template. Events that need it wait; its versions stay for history."""
    seen = await call.read(RemovedTemplate)
    await call.operate.templates.remove(call.actor, call.path("topic"), seen.type, seen.version)
    return await call.watch.templates.versions(call.path("topic"), seen.type)


def _template(topic: str, given: NewTemplate | TriedTemplate) -> Template:
    return Template(
        topic=topic,
        type=given.type,
        subject=given.subject,
        body=given.body,
        severity=given.severity,
        incident=given.incident,
        is_cleared=given.is_cleared,
    )

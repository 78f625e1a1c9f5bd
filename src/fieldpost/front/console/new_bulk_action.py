"""Confirmation and start of a bulk action."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from starlette.responses import Response

from fieldpost.central.operate.bulk_actions import Chosen
from fieldpost.central.watch.bulk_actions import NEWEST
from fieldpost.core.bulk import BulkVerb
from fieldpost.core.errors import InvalidInput
from fieldpost.core.ids import parse_notification_id
from fieldpost.core.notification import Status, Summary
from fieldpost.core.quantities import number
from fieldpost.core.search.filters import NOTIFICATION_FILTERS, parse_moment
from fieldpost.core.search.notification_filter import Filter
from fieldpost.core.times import to_text
from fieldpost.front.auth import Access
from fieldpost.front.console.kit.forms import local_path
from fieldpost.front.console.kit.request import PageRequest, PageRoute, SubmittedForm, field_errors, redirect
from fieldpost.front.console.notifications import PATH as NOTIFICATIONS
from fieldpost.front.console.notifications import fields_of

PATH = "/bulk-actions"
SELECTED_MAX = 200
_TEXTS = {
    BulkVerb.RETRY: "They become pending again and are sent to the targets that have not received them.",
    BulkVerb.DISCARD: "They will not be sent. Their records are kept. This cannot be undone.",
}
_NOTHING_FITS = "No parked notification matches; they were retried or discarded in the meantime."

BulkFields = Mapping[str, Sequence[str]]
"""All values of each field of a URL or form."""


@dataclass(frozen=True, slots=True)
class BulkFormPreview:
    """The notifications that a bulk action would process."""

    count: int
    is_whole: bool
    as_of: datetime
    samples: Sequence[Summary]
    fields: Sequence[tuple[str, str]]
    """Hidden form fields that carry the selection."""
    changed: int = 0
    """How many selected notifications have changed and are skipped."""


async def ask(request: PageRequest) -> Response:
    query = request.http.query_params
    return await _question(request, {name: query.getlist(name) for name in query})


async def start(request: PageRequest) -> Response:
    form = await request.fields()
    verb = _verb(form)
    as_of = _one(form, "as_of")
    try:
        action = await request.operate.bulk_actions.start(
            request.actor,
            verb,
            _chosen(form) or _filter(form),
            _one(form, "reason").strip(),
            as_of=parse_moment(as_of, "as_of") if as_of else None,
            in_stages=verb is BulkVerb.RETRY and _one(form, "pace") == "stages",
            action_id=_one(form, "action_id") or None,
        )
    except InvalidInput as error:
        if error.field != "reason":
            raise
        return await _question(request, form, error)
    return redirect(f"{PATH}/{action.action_id}", "started")


async def _question(request: PageRequest, given: BulkFields, error: InvalidInput | None = None) -> Response:
    verb, back = _verb(given), local_path(_one(given, "back") or NOTIFICATIONS)
    chosen = _chosen(given)
    if _one(given, "of") == "selection" and not chosen:
        return _none_selected(request, verb, back)
    found = await (_of_selection(request, chosen) if chosen else _of_filter(request, _filter(given)))
    said = f"{'' if found.is_whole else 'at least '}{number(found.count)}"
    action_id = _one(given, "action_id") or request.operate.bulk_actions.new_action_id()
    return request.confirm(
        form=SubmittedForm(
            {"reason": _one(given, "reason")}, field_errors(error) if error else {}, 422 if error else 200
        ),
        template="new_bulk_action.html",
        title=f"{verb.value.capitalize()} {said} parked notification{'' if found.count == 1 else 's'}?",
        text=_TEXTS[verb],
        verb=verb,
        found=found,
        action=PATH,
        hidden={"verb": verb.value, "back": back, "as_of": to_text(found.as_of), "action_id": action_id},
        button=f"{verb.value.capitalize()} {said}",
        is_danger=verb is BulkVerb.DISCARD,
        back=back,
        why_not=_NOTHING_FITS if found.is_whole and not found.count else None,
        pace=_one(given, "pace") or "all",
    )


def _none_selected(request: PageRequest, verb: BulkVerb, back: str) -> Response:
    return request.confirm(
        form=SubmittedForm(),
        title="No notifications selected",
        text=f"Select the notifications to {verb.value}, or use the buttons for all matching ones.",
        action=PATH,
        button="",
        is_danger=False,
        back=back,
        why_not="No parked notification is selected.",
    )


async def _of_filter(request: PageRequest, wanted: Filter) -> BulkFormPreview:
    found = await request.watch.bulk_actions.preview(wanted)
    fields = [(name, value) for name, value in fields_of(wanted).items() if isinstance(value, str)]
    return BulkFormPreview(found.count, found.is_whole, found.as_of, found.newest, fields)


async def _of_selection(request: PageRequest, chosen: Sequence[Chosen]) -> BulkFormPreview:
    found, as_of = await request.watch.notifications.these([one.notification_id for one in chosen])
    kept = [
        n
        for one in chosen
        if (n := found.get(one.notification_id)) and n.version == one.version and n.status is Status.PARKED
    ]
    fields = [("chosen", f"{n.notification_id}.{n.version}") for n in kept]
    return BulkFormPreview(len(kept), True, as_of, kept[:NEWEST], fields, len(chosen) - len(kept))


def _filter(given: BulkFields) -> Filter:
    names = [field.name for field in NOTIFICATION_FILTERS]
    return Filter.parse({name: given[name][-1] for name in names if _one(given, name)})


def _chosen(given: BulkFields) -> tuple[Chosen, ...]:
    selected = given.get("chosen", ())
    if len(selected) > SELECTED_MAX:
        raise InvalidInput("bulk.selection", f"select at most {SELECTED_MAX} notifications", field="chosen")
    return tuple(_one_chosen(text) for text in selected)


def _one_chosen(text: str) -> Chosen:
    notification_id, _, version = text.partition(".")
    if not (version.isascii() and version.isdecimal() and len(version) < 10):
        raise InvalidInput("form.version", "each selected notification must be given as ID.VERSION", field="chosen")
    return Chosen(parse_notification_id(notification_id), int(version))


def _verb(given: BulkFields) -> BulkVerb:
    text = _one(given, "verb")
    try:
        return BulkVerb(text)
    except ValueError:
        raise InvalidInput("bulk.verb", f"verb must be retry or discard, not {text[:64]!r}", field="verb") from None


def _one(given: BulkFields, name: str) -> str:
    values = given.get(name)
    return values[-1] if values else ""


ROUTES = (PageRoute("GET", f"{PATH}/new", ask, Access.OPERATOR), PageRoute("POST", PATH, start, Access.OPERATOR))

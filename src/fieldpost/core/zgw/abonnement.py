"""Kanalen and abonnementen of the ZGW API as their requests describe them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.filter import ENTRIES_MAX, FilterEntry, check_filter, zgw_entry
from fieldpost.core.events.topic import ATTRIBUTES_MAX, Topic, check_attribute_name, check_topic_name
from fieldpost.core.zgw.fields import FieldReader, InvalidParam, InvalidParams, invalid, optional_url, text_of
from fieldpost.core.zgw.matching import names_fit
from fieldpost.core.zgw.notification import KANAAL_LENGTH_MAX, NAME_LENGTH_MAX

LINK_LENGTH_MAX = 200
AUTH_LENGTH_MAX = 4096
CALLBACK_LENGTH_MAX = 2048


@dataclass(frozen=True, slots=True)
class KanaalFields:
    """The given fields of a kanaal; None for those that were not."""

    naam: str | None
    documentatie_link: str | None
    filters: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class AbonnementFields:
    """The given fields of an abonnement; None for those that were not."""

    callback_url: str | None
    auth: str | None
    entries: tuple[FilterEntry, ...] | None


def read_kanaal(value: object, *, is_partial: bool = False) -> KanaalFields:
    """The fields of a kanaal, or InvalidParams."""
    fields = FieldReader(value, is_partial=is_partial)
    found = KanaalFields(
        fields.read("naam", _kanaal_name),
        fields.read("documentatieLink", optional_url(LINK_LENGTH_MAX), is_required=False),
        fields.read("filters", _names, is_required=False),
    )
    fields.finish()
    return found


def read_abonnement(value: object, *, is_partial: bool = False) -> AbonnementFields:
    """The fields of an abonnement, or InvalidParams. The rules of webhooks check the URL further."""
    fields = FieldReader(value, is_partial=is_partial)
    found = AbonnementFields(
        fields.read("callbackUrl", text_of(CALLBACK_LENGTH_MAX)),
        fields.read("auth", text_of(AUTH_LENGTH_MAX)),
        fields.read("kanalen", _entries),
    )
    fields.finish()
    return found


def check_kanalen_exist(entries: Sequence[FilterEntry], kanalen: Mapping[str, Topic]) -> None:
    """InvalidParams if an entry names an unknown kanaal, or filters that fit its kanaal neither way."""
    wrong = []
    for number, entry in enumerate(entries):
        kanaal = kanalen.get(entry.topic)
        if kanaal is None:
            wrong.append(InvalidParam(f"kanalen.{number}.naam", "kanaal_naam", f"there is no kanaal {entry.topic!r}"))
        elif not names_fit(kanaal.attributes, tuple(entry.attributes)):
            reason = f"the names must fit those of the kanaal: {', '.join(kanaal.attributes)}"
            wrong.append(InvalidParam(f"kanalen.{number}.filters", "inconsistent-abonnement-filters", reason))
    if wrong:
        raise InvalidParams(*wrong)


def _kanaal_name(value: Any, name: str) -> str:
    text_of(KANAAL_LENGTH_MAX)(value, name)
    try:
        return check_topic_name(value, name, KANAAL_LENGTH_MAX)
    except InvalidInput as error:
        raise invalid(name, "invalid", error.message) from None


def _names(value: Any, name: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise invalid(name, "not_a_list", "must be a list of names")
    if len(value) > ATTRIBUTES_MAX:
        raise invalid(name, "max_length", f"must have at most {ATTRIBUTES_MAX} names")
    for number, one in enumerate(value):
        text_of(NAME_LENGTH_MAX)(one, f"{name}.{number}")
        try:
            check_attribute_name(one, name)
        except InvalidInput as error:
            raise invalid(f"{name}.{number}", "invalid", error.message) from None
    return tuple(dict.fromkeys(value))


def _entries(value: Any, name: str) -> tuple[FilterEntry, ...]:
    if not isinstance(value, list):
        raise invalid(name, "not_a_list", "must be a list of kanalen")
    if not 1 <= len(value) <= ENTRIES_MAX:
        raise invalid(name, "invalid", f"must have 1 to {ENTRIES_MAX} entries")
    entries = tuple(_entry(one, f"{name}.{number}") for number, one in enumerate(value))
    try:
        return check_filter(entries)
    except InvalidInput as error:
        raise invalid(name, "invalid", error.message) from None


def _entry(value: Any, name: str) -> FilterEntry:
    if not isinstance(value, dict):
        raise invalid(name, "invalid", "must be an object with naam and filters")
    kanaal, filters = value.get("naam"), value.get("filters", {})
    if type(kanaal) is not str:
        raise invalid(f"{name}.naam", "required", "this field is required")
    if not isinstance(filters, dict):
        raise invalid(f"{name}.filters", "not_a_dict", "must be an object of names and texts")
    for key, one in filters.items():
        text_of(NAME_LENGTH_MAX)(key, f"{name}.filters.{key[:NAME_LENGTH_MAX]}")
        text_of(1000)(one, f"{name}.filters.{key[:NAME_LENGTH_MAX]}")
    return zgw_entry(_kanaal_name(kanaal, f"{name}.naam"), filters)

"""The form of a subscription: filter lines, settings, secrets and extra headers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fieldpost.core.delivery.adapter import SettingField
from fieldpost.core.delivery.retry import to_text
from fieldpost.core.errors import FieldpostError, InvalidInput
from fieldpost.core.events.filter import FilterEntry, entry_text, parse_entry
from fieldpost.core.events.subscription import Subscription
from fieldpost.front.console.channel_form import CLEAR, SECRET, SETTING, as_text, field_value
from fieldpost.front.console.kit.request import field_errors

SECRETS = ("secret", "auth_secret")


@dataclass(frozen=True, slots=True)
class SubscriptionFields:
    """The submitted values; None removes one."""

    filter: list[FilterEntry]
    settings: dict[str, object]
    secrets: dict[str, object]
    retry: str | None


def read(
    fields: Sequence[SettingField], form: Mapping[str, str], present: Mapping[str, object] | None = None
) -> SubscriptionFields:
    """Parse the form; of settings only those that differ from the present ones. InvalidInput for invalid lines."""
    present = present or {}
    plain = [field for field in fields if field.name not in SECRETS]
    wanted = {field.name: field_value(field, form.get(SETTING + field.name, "").strip()) for field in plain}
    wanted["headers"] = _headers(form.get(f"{SETTING}headers", "")) or None
    settings = {name: value for name, value in wanted.items() if present.get(name) != value}
    settings = {name: value for name, value in settings.items() if value is not None or name in present}
    secrets: dict[str, object] = {name: text for name in SECRETS if (text := form.get(SECRET + name, ""))}
    secrets |= {name: None for name in SECRETS if form.get(CLEAR + name) == "true" and name not in secrets}
    return SubscriptionFields(
        _entries(form.get("filter", "")), settings, secrets, form.get("retry", "").strip() or None
    )


def shown(fields: Sequence[SettingField], subscription: Subscription) -> dict[str, str]:
    """The subscription as values of form fields."""
    settings = subscription.settings
    headers = settings.get("headers")
    lines = "\n".join(f"{n}: {v}" for n, v in headers.items()) if isinstance(headers, Mapping) else ""
    values = {SETTING + field.name: as_text(settings.get(field.name)) for field in fields if field.name not in SECRETS}
    return {
        **values,
        f"{SETTING}headers": lines,
        "filter": "\n".join(entry_text(entry) for entry in subscription.filter),
        "retry": to_text(subscription.retry) if subscription.retry else "",
    }


def errors_of(error: FieldpostError) -> dict[str, str]:
    """The error by form field."""
    errors = field_errors(error)
    name, text = next(iter(errors.items()))
    if name.startswith("filter"):
        return {"filter": text}
    if name.startswith("headers"):
        return {f"{SETTING}headers": text}
    if name in ("", "name", "owner", "retry", "version", f"{SETTING}headers") or name.startswith((SETTING, SECRET)):
        return errors
    return {(SECRET if name in SECRETS else SETTING) + name: text}


def _entries(text: str) -> list[FilterEntry]:
    lines = enumerate(text.splitlines(), 1)
    return [parse_entry(line, f"line {number}") for number, line in lines if line.strip()]


def _headers(text: str) -> dict[str, str]:
    headers: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        name, colon, value = (one.strip() for one in line.partition(":"))
        if not colon or not name:
            raise InvalidInput("form.header", f"line {number} must be Name: value", field=f"{SETTING}headers")
        headers[name] = value
    return headers

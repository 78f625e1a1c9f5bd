"""The form of a channel: one field per setting if the adapter describes them, else lines of `name=value`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from fieldpost.central.operate.channel_settings import ChannelType
from fieldpost.core.delivery.adapter import SettingField
from fieldpost.core.errors import FieldpostError, InvalidInput
from fieldpost.core.lists import Channel
from fieldpost.core.setting import parse_scalar
from fieldpost.front.console.kit.request import field_errors

SETTING = "settings."
SECRET = "secrets."
CLEAR = "clear."


@dataclass(frozen=True, slots=True)
class ChannelFields:
    """Settings, secrets and retry fields to change; None removes one."""

    settings: dict[str, object]
    secrets: dict[str, object]
    retries: dict[str, object]


def read(kind: ChannelType, form: Mapping[str, str], channel: Channel | None = None) -> ChannelFields:
    """Parse the form; for an existing channel, only the differences. InvalidInput for invalid lines."""
    present = dict(channel.settings) if channel else {}
    wanted = {field.name: field_value(field, form.get(SETTING + field.name, "").strip()) for field in kind.plain_fields}
    if not kind.is_described:
        wanted = _lines(form.get("settings", ""))
    settings: dict[str, object] = {n: v for n, v in wanted.items() if v is not None and present.get(n) != v}
    settings |= {
        name: None for name in present if wanted.get(name) is None and (name in wanted or not kind.is_described)
    }
    secrets: dict[str, object] = {name: text for name in kind.secrets if (text := form.get(SECRET + name, ""))}
    secrets |= {name: None for name in kind.secrets if form.get(CLEAR + name) == "true" and name not in secrets}
    retries = {field.name: field_value(field, form.get(field.name, "").strip()) for field in kind.policy_fields}
    changed = {n: v for n, v in retries.items() if as_text(getattr(channel, n, None)) != as_text(v)}
    return ChannelFields(settings, secrets, changed)


def shown(kind: ChannelType, channel: Channel) -> dict[str, str]:
    """The settings and retry fields as values of form fields."""
    retries = {field.name: as_text(getattr(channel, field.name)) for field in kind.policy_fields}
    if not kind.is_described:
        lines = "\n".join(f"{name}={_as_line(value)}" for name, value in channel.settings.items())
        return {"settings": lines, **retries}
    return {SETTING + field.name: as_text(channel.settings.get(field.name)) for field in kind.plain_fields} | retries


def as_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) and value.is_integer() and value < 1e9 else str(value)


def kept(form: Mapping[str, str]) -> dict[str, str]:
    """The submitted fields except secrets, to fill the form again."""
    return {name: text for name, text in form.items() if not name.startswith(SECRET)}


def errors_of(error: FieldpostError, kind: ChannelType) -> dict[str, str]:
    """The error by form field."""
    errors = field_errors(error)
    if not kind.is_described and (error.field or "").startswith(SETTING):
        return {"settings": next(iter(errors.values()))}
    return errors


def field_value(field: SettingField, text: str) -> object:
    """The value in the type that the adapter expects; an invalid number stays text, and the adapter rejects it."""
    if not text:
        return None
    try:
        match field.kind:
            case "whole":
                return int(text)
            case "number":
                number = float(text)
                return int(number) if number.is_integer() and "." not in text and "e" not in text.lower() else number
            case _:
                return text
    except (ValueError, OverflowError):
        return text


def _lines(text: str) -> dict[str, object]:
    settings: dict[str, object] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise InvalidInput("form.setting", f"line {number} must be name=value", field="settings")
        if name.strip() in settings:
            raise InvalidInput("form.setting", f"line {number} gives {name.strip()[:64]} twice", field="settings")
        settings[name.strip()] = parse_scalar(value.strip())
    return settings


def _as_line(value: object) -> str:
    """The inverse of `parse_scalar`."""
    if isinstance(value, str) and parse_scalar(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)

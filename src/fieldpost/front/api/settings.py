"""`/settings`: what this node works by. Settings are read once, at its start; nothing here changes them."""

import msgspec

from fieldpost.core.setting import EffectiveSetting, Value
from fieldpost.front.http.call import ApiAnswer, Call
from fieldpost.front.http.endpoint_spec import spec


class SettingView(msgspec.Struct, frozen=True, kw_only=True):
    section: str
    name: str
    value: Value
    """Three stars where it is a secret."""
    default: Value
    unit: str | None
    is_default: bool
    origin: str
    environment: str
    says: str


class SettingsView(msgspec.Struct, frozen=True):
    node_id: str
    settings: list[SettingView]


@spec(SettingsView)
async def show(call: Call) -> ApiAnswer:
    """Every setting as it is in force on the node that answers: its value, its default, its unit, where the value came
    from, and what it is for. Secrets are three stars."""
    effective_settings = call.backend.effective_settings
    return ApiAnswer(SettingsView(effective_settings.node_id, [_view(one) for one in effective_settings.settings]))


def _view(one: EffectiveSetting) -> SettingView:
    return SettingView(
        section=one.section,
        name=one.name,
        value=one.value,
        default=one.default,
        unit=one.unit,
        is_default=one.is_default,
        origin=one.origin,
        environment=one.environment,
        says=one.says,
    )

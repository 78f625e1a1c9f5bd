"""`/settings`: the effective settings of this node. A node reads them once, when it starts."""

from fieldpost.core.setting import EffectiveSetting, EffectiveSettings
from fieldpost.front.http.call import Call
from fieldpost.link.http.endpoint_spec import spec
from fieldpost.link.http.view import View, ViewField

SETTING = View(
    "SettingView",
    EffectiveSetting,
    "section name value default unit is_default origin environment description",
    description="One setting; the value of a secret is ***.",
)
SETTINGS = View("SettingsView", EffectiveSettings, "node_id", ViewField("settings", view=SETTING))


@spec(SETTINGS)
async def show(call: Call) -> EffectiveSettings:
    """Show every setting of the node that answers: value, default, unit, the origin of the value, and its purpose.
    Secrets are shown as three asterisks."""
    return call.backend.effective_settings

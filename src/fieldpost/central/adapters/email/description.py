"""Description of email channels for people: settings as form fields, phases of an attempt, and the guide."""

import tomllib
from importlib.resources import files

from fieldpost.central.adapters.email import settings
from fieldpost.core.delivery.adapter import AttemptPhase, SettingField

_FOLDER = files("fieldpost.central.adapters.email")
_DESCRIBED = tomllib.loads((_FOLDER / "description.toml").read_text("utf-8"))
_CONSTANTS = vars(settings) | {"ports": ", ".join(f"{port} with {tls}" for tls, port in settings.PORTS.items())}

FIELDS = tuple(
    SettingField(
        **field
        | {"default": field.get("default", "").format_map(_CONSTANTS)}
        | {name: tuple(field.get(name, ())) for name in ("choices", "values")}
    )
    for field in _DESCRIBED["fields"]
)
PHASES = tuple(AttemptPhase(**phase | {"values": tuple(phase.get("values", ()))}) for phase in _DESCRIBED["phases"])
GUIDE = (_FOLDER / "guide.md").read_text("utf-8")

"""Refuse a settings file that holds a secret and is readable by every user of the machine.

Where the mode of the file cannot be chosen, as for files mounted into a container, use environment variables.
"""

import os
from pathlib import Path

from fieldpost.core.checks import Check, CheckVerdict
from fieldpost.core.errors import ConfigError
from fieldpost.core.setting import open_secrets
from fieldpost.run.effective_settings import secret_keys, variable
from fieldpost.run.settings_file import DEFAULT_FILE, in_file


def refuse_exposure(file: Path | None) -> None:
    """Raise ConfigError, naming file and setting, if other users can read a secret."""
    if keys := _exposed(file):
        path = file or DEFAULT_FILE
        hint = f"chmod 600 {path}, or set {variable(*keys[0].split('.'))} instead"
        raise ConfigError("settings.exposed", _detail(path, keys), hint=hint, field=keys[0])


def exposure_check(file: Path | None) -> Check | None:
    """The failing check for the doctor; None if no secret is exposed."""
    path = file or DEFAULT_FILE
    keys = _exposed(file)
    return Check("settings", CheckVerdict.FAILING, f"{_detail(path, keys)}: chmod 600 {path}") if keys else None


def _exposed(file: Path | None) -> tuple[str, ...]:
    path = file or DEFAULT_FILE
    if os.name != "posix" or not path.exists():
        return ()
    return open_secrets(path.stat().st_mode, in_file(file), secret_keys())


def _detail(path: Path, keys: tuple[str, ...]) -> str:
    return f"every user of this machine can read {path}, which holds a secret ({', '.join(keys)})"

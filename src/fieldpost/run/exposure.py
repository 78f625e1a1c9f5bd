"""Whether the settings file shows a secret to every user of the machine: told at start and by the doctor.

It is no reason not to start: where files are handed to a container, say, their modes are not always ours to choose.
"""

import os
from pathlib import Path

import structlog

from fieldpost.core.checks import Check, Verdict
from fieldpost.core.setting import open_secrets
from fieldpost.run.in_force import secret_keys
from fieldpost.run.settings import DEFAULT_FILE, in_file

log = structlog.get_logger()


def warn_of_exposure(file: Path | None) -> None:
    """Log what the file shows to others, if anything."""
    if (check := exposure_check(file)) is not None:
        log.warning("settings.exposed", file=str(file or DEFAULT_FILE), error=check.detail)


def exposure_check(file: Path | None) -> Check | None:
    """A warning that names file and settings, or None where there is nothing to warn of."""
    path = file or DEFAULT_FILE
    if os.name != "posix" or not path.exists():
        return None
    keys = open_secrets(path.stat().st_mode, in_file(file), secret_keys())
    if not keys:
        return None
    detail = f"every user of this machine can read {path}, which holds a secret ({', '.join(keys)}): chmod 600 {path}"
    return Check("settings", Verdict.WARNING, detail)

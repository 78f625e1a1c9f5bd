"""Secrets of a site: one file each, beside `site.toml`, with one line, readable only by its owner."""

import os
import stat
from pathlib import Path

from fieldpost.core.errors import ConfigError, InvalidInput
from fieldpost.core.secret import Secret, check_secret

SECRET_FILE_BYTES_MAX = 16 * 1024


def read_secret(file: Path, key: str) -> Secret:
    """The content of a secret file. Raises ConfigError with file and key, but never with the content."""
    try:
        with file.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            content = stream.read(SECRET_FILE_BYTES_MAX + 1)
        text = content.decode("utf-8").rstrip("\r\n")
    except FileNotFoundError:
        raise ConfigError("site.no_secret", f"the secret file {file} ({key}) does not exist", field=key) from None
    except UnicodeDecodeError:
        raise ConfigError("site.secret", f"the secret file {file} ({key}) is not UTF-8", field=key) from None
    except OSError as error:
        raise ConfigError(
            "site.secret", f"the secret file {file} ({key}) cannot be read: {error.strerror}", field=key
        ) from None
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            "site.secret_open",
            f"the secret file {file} ({key}) can be read by other users (mode {stat.S_IMODE(mode):04o})",
            hint=f"chmod 600 {file}",
            field=key,
        )
    try:
        return check_secret(text, key)
    except InvalidInput as error:
        raise ConfigError("site.secret", f"the secret file {file}: {error.message}", field=key) from None

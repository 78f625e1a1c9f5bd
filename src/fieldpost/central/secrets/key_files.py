"""Loading the keys: from the environment, or from a file that the first start creates.

A wrong or missing key never stops central: channels without secrets continue, the others are held with the reason. A
key is created only while the store knows none. A new node that lacks the keys of its store must not create its own: no
other node could open the secrets that it seals.
"""

import os
import secrets
import stat
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import structlog
from sqlalchemy import Connection, insert, select

from fieldpost.central.secrets.keyring import KEY_BYTES, Keyring, SecretKey, key_text, parse_keys
from fieldpost.central.secrets.secret_file import write_secret_file
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.schema.list_tables import secret_keys
from fieldpost.core.errors import ConfigError

KEY_FILE = "secret.key"
FILE_BYTES_MAX = 64 * 1024

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretsOptions:
    """[secrets]"""

    key_file: str = ""
    """The file with the keys that encrypt secrets, one per line, the newest first; empty for `secret.key` in central's
    folder, which the first start creates."""
    key: str = field(default="", repr=False)
    """The keys themselves, separated by commas; better set in the environment than in the settings file. Takes
    precedence over `key_file`."""


async def load_keyring(store: Store, options: SecretsOptions, folder: Path, now: datetime) -> Keyring:
    """The keys of this node; the very first start creates one in a key file."""
    file = _key_file(options, folder)
    try:
        if not options.key and not file.exists() and not await store.read(known_keys):
            make_key_file(file)
            log.info("secrets.key_made", file=str(file))
        keys = read_keys(options, folder)
    except ConfigError as error:
        log.error("secrets.no_key", error=error.message)
        return Keyring(problem=error.message)
    problem = None if options.key else _exposure(file)
    if problem:
        log.warning("secrets.key_exposed", file=str(file), error=problem)
    await store.write(_remember, [key.key_id for key in keys], now)
    return Keyring(keys, problem)


def read_keys(options: SecretsOptions, folder: Path) -> list[SecretKey]:
    """The configured keys. Raises ConfigError if they are missing or invalid."""
    file = _key_file(options, folder)
    return parse_keys(options.key or _read(file), "FIELDPOST_SECRETS__KEY" if options.key else str(file))


def _key_file(options: SecretsOptions, folder: Path) -> Path:
    return Path(options.key_file) if options.key_file else folder / KEY_FILE


def known_keys(conn: Connection) -> set[str]:
    """The ids of all keys that nodes of this store have ever used."""
    return set(conn.execute(select(secret_keys.c.key_id)).scalars())


def make_key_file(file: Path) -> None:
    """Put a new key at the start of the file, before the existing ones; only its owner can read it."""
    before = _read(file) if file.exists() else ""
    try:
        write_secret_file(file, key_text(secrets.token_bytes(KEY_BYTES)) + "\n" + before)
    except OSError as error:
        raise ConfigError("secrets.key_file", f"the key file {file} cannot be written: {error.strerror}") from None


def _read(file: Path) -> str:
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise ConfigError("secrets.key_file", f"the key file {file} is larger than {FILE_BYTES_MAX} bytes")
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            "secrets.key_file",
            f"there is no key file {file}, but the store has used keys before: copy the file from another node",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise ConfigError("secrets.key_file", f"the key file {file} cannot be read: {reason}") from None


def _exposure(file: Path) -> str | None:
    """The problem if others than its owner can read the file."""
    if os.name == "posix" and stat.S_IMODE(file.stat().st_mode) & 0o077:
        return f"others than its owner can read the key file {file}: set its mode to 0600"
    return None


def _remember(conn: Connection, key_ids: list[str], now: datetime) -> None:
    fresh = [key_id for key_id in dict.fromkeys(key_ids) if key_id not in known_keys(conn)]
    if fresh:
        conn.execute(insert(secret_keys), [{"key_id": key_id, "added_at": now} for key_id in fresh])

"""Where the keys come from: the environment, or a file that the first start makes.

A wrong or missing key never stops central: what needs no secret goes on, and what does is held and says why. A key is
made only while the store knows of none. A node that comes to a store whose keys it was not given must not make its own,
or nobody could read what it seals.
"""

import contextlib
import os
import secrets
import stat
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import structlog
from sqlalchemy import Connection, insert, select

from fieldpost.central.secrets.keyring import KEY_BYTES, Keyring, key_text, parse_keys
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
    """The file with the keys that secrets are encrypted under, one a line, the newest first; empty for `secret.key` in
    central's folder, which the first start makes."""
    key: str = field(default="", repr=False)
    """The keys themselves, between commas; given by the environment rather than in a file of settings. Stands above
    `key_file`."""


async def load_keyring(store: Store, options: SecretsOptions, folder: Path, now: datetime) -> Keyring:
    """The keys that this node is given; at the very first start a new one, in a file of its own."""
    file = Path(options.key_file) if options.key_file else folder / KEY_FILE
    try:
        if not options.key and not file.exists() and not await store.read(known_keys):
            make_key_file(file)
            log.info("secrets.key_made", file=str(file))
        keys = parse_keys(options.key or _read(file), "FIELDPOST_SECRETS__KEY" if options.key else str(file))
    except ConfigError as error:
        log.error("secrets.no_key", error=error.message)
        return Keyring(trouble=error.message)
    trouble = None if options.key else _exposure(file)
    if trouble:
        log.warning("secrets.key_exposed", file=str(file), error=trouble)
    await store.write(_take_note, [key.key_id for key in keys], now)
    return Keyring(keys, trouble)


def known_keys(conn: Connection) -> set[str]:
    """The ids of all keys that any node of this store was ever given."""
    return set(conn.execute(select(secret_keys.c.key_id)).scalars())


def make_key_file(file: Path) -> None:
    """Put a new key first in the file, the ones that stand there behind it; readable by its owner alone.

    Written beside it and then put in its place, so that no crash leaves half a key.
    """
    before = _read(file) if file.exists() else ""
    part = file.with_name(f"{file.name}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as handle:
            handle.write(key_text(secrets.token_bytes(KEY_BYTES)) + "\n" + before)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(part, file)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise ConfigError("secrets.key_file", f"the key file {file} cannot be written: {error.strerror}") from None


def _read(file: Path) -> str:
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise ConfigError("secrets.key_file", f"{file} is larger than a key file can be")
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            "secrets.key_file", f"there is no key file {file}, and the store knows keys of other nodes or earlier days"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ConfigError("secrets.key_file", f"the key file {file} cannot be read: {reason}") from None


def _exposure(file: Path) -> str | None:
    """What is wrong with who may read the file."""
    if os.name == "posix" and stat.S_IMODE(file.stat().st_mode) & 0o077:
        return f"others than its owner may read the key file {file}; its mode should be 0600"
    return None


def _take_note(conn: Connection, key_ids: list[str], now: datetime) -> None:
    fresh = [key_id for key_id in dict.fromkeys(key_ids) if key_id not in known_keys(conn)]
    if fresh:
        conn.execute(insert(secret_keys), [{"key_id": key_id, "added_at": now} for key_id in fresh])

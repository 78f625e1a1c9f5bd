"""Idempotency keys: a send or call repeated with the same key and content gets the same id."""

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

import apsw

from fieldpost.core.errors import Conflict
from fieldpost.core.text import check_label
from fieldpost.core.times import to_microseconds

_FIND = "SELECT message_id, digest FROM keys WHERE key = :key"
_INSERT = "INSERT INTO keys (key, message_id, digest, created_at) VALUES (:key, :message_id, :digest, :created_at)"
_PURGE = "DELETE FROM keys WHERE key IN (SELECT key FROM keys WHERE created_at < :before LIMIT :limit)"


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A caller's key and the digest of its content."""

    text: str
    digest: bytes


def key_for(text: str | None, *content: str) -> IdempotencyKey | None:
    """The checked key for this content; None without a key. Raises InvalidInput."""
    if text is None:
        return None
    parts = [part.encode() for part in content]
    digest = sha256(b"".join(piece for part in parts for piece in (len(part).to_bytes(8, "big"), part))).digest()
    return IdempotencyKey(check_label(text, "key"), digest)


def earlier(cursor: apsw.Cursor, key: IdempotencyKey) -> str | None:
    """The id stored with this key; None for a new key. Raises Conflict if the key was used with other content."""
    for message_id, digest in cursor.execute(_FIND, {"key": key.text}).fetchall():
        if digest != key.digest:
            raise Conflict(
                "message.key_used",
                f"the key {key.text!r} was used before with different content, for {message_id}",
                hint="use a different key for each send or call",
            )
        return str(message_id)
    return None


def remember(cursor: apsw.Cursor, key: IdempotencyKey, message_id: str, now: datetime) -> None:
    """Store the key with its id."""
    parameters = {"key": key.text, "message_id": message_id, "digest": key.digest, "created_at": to_microseconds(now)}
    cursor.execute(_INSERT, parameters)


def purge(cursor: apsw.Cursor, before: datetime, limit: int = 1_000) -> int:
    """Delete up to `limit` keys created before this time; returns how many."""
    cursor.execute(_PURGE, {"before": to_microseconds(before), "limit": limit})
    return cursor.connection.changes()

"""Verification of the audit log of a store that no central serves: a database file, a backup, or a URL."""

import os
from collections.abc import AsyncIterator, Collection
from datetime import datetime, timedelta

from fieldpost.central.store.engine.database_url import open_store, parse_url
from fieldpost.central.store.engine.lock import StoreLock
from fieldpost.central.store.schema.migrate import schema_of
from fieldpost.central.watch.audit_verification import AuditVerifier, VerifiedPiece
from fieldpost.core.errors import ConfigError


def _check_exists(url: str) -> None:
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite" and not os.path.isfile(parsed.database or ""):
        raise ConfigError("store.missing", f"there is no database file {parsed.database}")


async def verify_store(
    where: str, public_keys: Collection[bytes], retention: timedelta, since: datetime | None = None
) -> AsyncIterator[VerifiedPiece]:
    """Verify piece by piece. Raises ConfigError for a store that is missing or has another schema."""
    url = where if "://" in where else f"sqlite:///{where}"
    _check_exists(url)
    with StoreLock(url):
        store = open_store(url)
        try:
            schema = await store.read(schema_of)
            if schema.current != schema.wanted:
                raise ConfigError(
                    "store.schema",
                    f"the database has schema {schema.current or 'none'}, this version needs {schema.wanted}",
                )
            verifier = AuditVerifier(store, public_keys, retention)
            number: int | None = 1 if since is None else await verifier.first_since(since)
            while number is not None:
                piece = await verifier.piece(number)
                yield piece
                number = piece.next_batch
        finally:
            await store.close()

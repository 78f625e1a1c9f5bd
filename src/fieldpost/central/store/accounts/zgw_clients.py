"""Clients of the ZGW API."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select, update

from fieldpost.central.store.schema.account_tables import zgw_clients
from fieldpost.core.zgw.client import ZgwClient, ZgwScope

_C = zgw_clients.c


def all_clients(conn: Connection) -> list[ZgwClient]:
    """All clients by id, revoked ones included."""
    return [_client(row) for row in conn.execute(select(zgw_clients).order_by(_C.client_id)).mappings()]


def get(conn: Connection, client_id: str) -> ZgwClient | None:
    row = conn.execute(select(zgw_clients).where(_C.client_id == client_id)).mappings().first()
    return _client(row) if row else None


def after(conn: Connection, client_id: str, limit: int) -> list[ZgwClient]:
    """The next clients after this id, for processing all of them in batches."""
    query = select(zgw_clients).where(_C.client_id > client_id).order_by(_C.client_id).limit(limit)
    return [_client(row) for row in conn.execute(query).mappings()]


def add(conn: Connection, client: ZgwClient) -> None:
    conn.execute(insert(zgw_clients).values(client_id=client.client_id, version=client.version, **_values(client)))


def change(conn: Connection, wanted: ZgwClient) -> bool:
    """Write all but the id and the last use, if the client is still at `wanted.version`."""
    of_this = (_C.client_id == wanted.client_id, _C.version == wanted.version)
    changed = update(zgw_clients).where(*of_this).values(version=wanted.version + 1, **_values(wanted))
    return conn.execute(changed).rowcount == 1


def reseal(conn: Connection, client: ZgwClient) -> bool:
    """Write the same secrets under another key, unless the client has changed; its version stays."""
    of_this = (_C.client_id == client.client_id, _C.version == client.version)
    return conn.execute(update(zgw_clients).where(*of_this).values(secrets=dict(client.secrets))).rowcount == 1


def used(conn: Connection, client_id: str, now: datetime) -> None:
    conn.execute(update(zgw_clients).where(_C.client_id == client_id).values(last_used_at=now))


def _values(client: ZgwClient) -> dict[str, object]:
    return {
        "scopes": [scope.value for scope in client.scopes],
        "kanalen": list(client.kanalen),
        "secrets": dict(client.secrets),
        "rotated_at": client.rotated_at,
        "created_at": client.created_at,
        "created_by": client.created_by,
        "revoked_at": client.revoked_at,
    }


def _client(row: Mapping[Any, Any]) -> ZgwClient:
    return ZgwClient(
        client_id=row["client_id"],
        scopes=tuple(map(ZgwScope, row["scopes"])),
        kanalen=tuple(row["kanalen"]),
        secrets=row["secrets"],
        rotated_at=row["rotated_at"],
        created_at=row["created_at"],
        created_by=row["created_by"],
        last_used_at=row["last_used_at"],
        revoked_at=row["revoked_at"],
        version=row["version"],
    )

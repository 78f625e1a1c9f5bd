"""Values that an installation chooses at its first start and keeps, whichever node starts first."""

from sqlalchemy import Connection, Text

from fieldpost.central.store.engine.statement import Statement

_choose = Statement("insert into installation (name, value) values (:name, :value) on conflict (name) do nothing")
_get = Statement("select value from installation where name = :name", result={"value": Text})


def choose(conn: Connection, name: str, value: str) -> str:
    """Keep this value unless one is kept already; returns the value that is kept."""
    _choose.run(conn, name=name, value=value)
    return str(_get.run(conn, name=name)[0].value)

"""The DDL of the outbox's tables follows from one declaration."""

import pytest

from fieldpost.core.errors import Conflict
from fieldpost.outbox.ddl import changes, ddl
from fieldpost.outbox.tables import EVENT_OUTBOX, TABLES, OutboxDatabase

EVT_12 = frozenset(
    ("event_outbox_id", "event_type", "payload", "status", "retries", "last_attempt_at", "created_at", "updated_at")
)


@pytest.mark.parametrize("database", OutboxDatabase)
def test_every_declared_table_and_column_is_created(database: OutboxDatabase) -> None:
    statements = ddl(database)
    for table in TABLES:
        creating = next(one for one in statements if one.startswith(f"create table if not exists {table.name} ("))
        lines = [line.split()[0] for line in creating.splitlines()[1:-1]]
        assert lines == [column.name for column in table.columns]


@pytest.mark.parametrize("database", OutboxDatabase)
def test_table_with_only_the_first_columns_gets_the_others(database: OutboxDatabase) -> None:
    statements = changes(database, {"event_outbox": EVT_12})
    added = [one.split()[5] for one in statements if one.startswith("alter table event_outbox add column ")]
    assert added == [column.name for column in EVENT_OUTBOX.columns if column.name not in EVT_12]
    assert not [one for one in statements if one.startswith("create table if not exists event_outbox ")]


@pytest.mark.parametrize("database", OutboxDatabase)
def test_foreign_table_of_the_same_name_is_a_conflict_that_names_the_column(database: OutboxDatabase) -> None:
    with pytest.raises(Conflict, match="event_outbox exists but has no column payload, retries") as raised:
        changes(database, {"event_outbox": EVT_12 - {"payload", "retries"}})
    assert raised.value.code == "outbox.table"


def test_columns_that_can_be_added_are_nullable_or_have_a_constant_default() -> None:
    """SQLite refuses to add others to a table, and PostgreSQL would rewrite it."""
    for table in TABLES:
        for column in table.columns:
            if column.name not in table.required:
                added = next(
                    one
                    for one in changes(OutboxDatabase.SQLITE, {table.name: table.required})
                    if one.startswith(f"alter table {table.name} add column {column.name} ")
                )
                assert "(" not in added.partition(" default ")[2], added
                assert column.is_nullable or column.default is not None

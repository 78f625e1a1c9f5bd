"""The relay's statements find their rows by an index, however many SENT rows there are."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from fieldpost.outbox.ddl import index_columns
from fieldpost.outbox.relay.dialect import CompiledSql
from fieldpost.outbox.relay.statements import RelayStatements
from fieldpost.outbox.relay.transactions import OutboxTransactions
from fieldpost.outbox.tables import EVENT_OUTBOX, OutboxDatabase
from support.outbox_apps import AppDatabase

ID = "0198c8a0-0000-7000-8000-000000000001"


@pytest.mark.parametrize("is_analyzed", [False, True], ids=["new", "analyzed"])
async def test_no_statement_on_claimed_or_published_rows_reads_the_whole_table(
    empty_pg_url: str, is_analyzed: bool
) -> None:
    import asyncpg

    app = AppDatabase(empty_pg_url)
    app.execute(
        "insert into event_outbox (event_type, payload, status)"
        " select 'orders.created', '{}', 'SENT' from generate_series(1, 20000)"
    )
    if is_analyzed:
        app.execute("analyze event_outbox")
    sql = OutboxTransactions(OutboxDatabase.POSTGRESQL, "relay").statements
    rows = {"rows": json.dumps([[ID, 1, "SENT", 60.0]]), "owner": "relay"}
    failed = {"rows": json.dumps([[ID, 1, "error", 60.0]]), "owner": "relay"}
    state = {"rows": json.dumps([[ID, "SENT", None]])}
    ids = {"rows": json.dumps([[ID]]), "owner": "relay"}
    claim = {"owner": "relay", "lease_s": 60.0, "limit": 500, "bytes_max": 1_000_000}
    connection = await asyncpg.connect(empty_pg_url)

    async def plan(statement: CompiledSql, given: dict[str, object]) -> str:
        values = [given[name] for name in statement.names]
        return "\n".join(row[0] for row in await connection.fetch(f"explain {statement.text}", *values))

    for statement, given in (
        (sql.claim, claim),
        (sql.publish, rows),
        (sql.fail, failed),
        (sql.give_back, rows),
        (sql.set_state, state),
        (sql.publish_again, ids),
        (sql.postpone_checks, ids),
        (sql.facts, ids),
    ):
        found = await plan(statement, given)
        assert "Seq Scan on event_outbox" not in found, found
    await connection.close()


ARGUMENTS = {"limit": 500, "owner": "relay", "after": ID, "rows": json.dumps([[ID]])}
SENT = (
    "insert into event_outbox (event_outbox_id, event_type, payload, status)"
    " select {id}, 'orders.created', '{{}}', 'SENT' from {numbers}"
)


def searches(sql: RelayStatements) -> list[tuple[CompiledSql, str]]:
    """The queries for rows to claim and to follow, with the index that each uses."""
    due = [(sql.choose(status), "ix_event_outbox_due") for status in ("PENDING", "PROCESSING", "FAILED")]
    followed = (sql.choose_checks, sql.processing_page, sql.open_rows)
    unpublished = [(one, "ix_event_outbox_due") for one in (sql.is_any_due, sql.give_back_lost)]
    return [*unpublished, *due, *((one, "ix_event_outbox_status") for one in followed)]


@pytest.mark.req("EVT-13", "DEC-56")
def test_claims_on_sqlite_use_an_index_that_contains_only_open_rows(tmp_path: Path) -> None:
    app = AppDatabase(f"sqlite:///{tmp_path / 'application.db'}")
    numbers = "(with recursive n(n) as (select 1 union all select n + 1 from n where n < 20000) select n from n)"
    app.execute(SENT.format(id="'id-' || n", numbers=numbers))
    with closing(app.connect()) as connection:
        for statement, index in searches(OutboxTransactions(app.kind, "relay").statements):
            given = {name: ARGUMENTS[name] for name in statement.names}
            plan = [row[3] for row in connection.execute(f"explain query plan {statement.text}", given)]
            assert any(index in step for step in plan), plan
            assert not [step for step in plan if step.startswith(("SCAN o", "SCAN event_outbox")) and index not in step]


@pytest.mark.req("EVT-13", "DEC-56", "DEC-85")
def test_claims_on_mariadb_use_an_index_that_starts_with_the_status(mariadb_url: str) -> None:
    app = AppDatabase(mariadb_url)
    by_status = {name for name, columns in index_columns(app.kind, EVENT_OUTBOX) if columns[0] == "status"}
    app.execute(SENT.format(id="uuid()", numbers="seq_1_to_20000"))
    app.execute("analyze table event_outbox")
    with closing(app.connect()) as connection:
        for statement, _ in searches(OutboxTransactions(app.kind, "relay").statements):
            given = {name: ARGUMENTS[name] for name in statement.names}
            with connection.cursor() as cursor:
                cursor.execute(f"explain {statement.text}", given)
                names = [column[0] for column in cursor.description]
                plan = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
            [outer] = [row for row in plan if row["table"] in ("o", "event_outbox")]
            assert outer["key"] in by_status, (statement.text, plan)
            assert int(str(outer["rows"]).split()[0]) < 100, (statement.text, plan)

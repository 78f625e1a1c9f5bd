"""Django: atomic, nested atomic, requests, TestCase, two databases, migrations."""

import unittest
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fieldpost.core.errors import Conflict, InvalidInput
from fieldpost.outbox import Outbox
from fieldpost.outbox.tables import TABLES
from support.outbox_kinds import (
    OWN_TABLE,
    Django,
    Kind,
    Psycopg,
    PyMysql,
    Sqlite3,
    configure_django,
    django_database,
    forget_django,
    rolled_back,
)

DOWN = ("SERVICE_DOWN", {"service": 7})
OTHER = "second"


@pytest.fixture(params=["empty_pg_url", "sqlite", "mariadb_url"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'application.db'}"
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def django(url: str) -> Iterator[Django]:
    kind = Django(url)
    with kind.transaction():
        kind.create_tables(kind.alias)
        kind.execute(kind.alias, OWN_TABLE)
    yield kind
    kind.close()


def test_nested_atomic_blocks_keep_the_events_that_they_commit(django: Django) -> None:
    from django.db import connections, transaction

    with transaction.atomic(using=django.alias):
        first = Outbox.add(django.alias, *DOWN)
        with rolled_back(transaction.atomic(using=django.alias)):
            Outbox.add(django.alias, *DOWN)
            with transaction.atomic(using=django.alias):
                Outbox.add(django.alias, *DOWN)
        with transaction.atomic(using=django.alias):
            second = Outbox.add(connections[django.alias], *DOWN)
    assert django.events == {first, second}


def test_transaction_managed_by_hand_is_accepted(django: Django) -> None:
    from django.db import transaction

    transaction.set_autocommit(False, using=django.alias)
    Outbox.add(django.alias, *DOWN)
    transaction.rollback(using=django.alias)
    assert django.events == set()
    event_id = Outbox.add(django.alias, *DOWN)
    transaction.commit(using=django.alias)
    transaction.set_autocommit(True, using=django.alias)
    assert django.events == {event_id}


@pytest.mark.parametrize("is_failing", [False, True])
def test_request_with_atomic_requests_is_one_transaction(django: Django, is_failing: bool) -> None:
    from django.core.handlers.base import BaseHandler
    from django.db import connections
    from django.http import HttpResponse

    def view(request: Any) -> HttpResponse:
        django.execute(django.alias, "insert into things (id) values (1)")
        Outbox.add(django.alias, *DOWN)
        if is_failing:
            raise ValueError
        return HttpResponse()

    request = SimpleNamespace()
    with pytest.raises(Conflict, match="autocommit"):
        view(request)
    django.execute(django.alias, "delete from things")
    connections.settings[django.alias]["ATOMIC_REQUESTS"] = True
    atomic = BaseHandler().make_view_atomic(view)
    if is_failing:
        with pytest.raises(ValueError):
            atomic(request)
    else:
        atomic(request)
    assert (len(django.events), django.things) == ((0, set()) if is_failing else (1, {1}))


def test_test_case_sees_the_events_of_a_test_and_leaves_none(django: Django) -> None:
    from django.db import connections
    from django.test import TestCase

    class OrderTest(TestCase):
        databases = frozenset((django.alias,))

        def test_event(self) -> None:
            event_id = Outbox.add(django.alias, *DOWN)
            with connections[django.alias].cursor() as cursor:
                cursor.execute("select event_outbox_id from event_outbox")
                assert [str(row[0]) for row in cursor.fetchall()] == [event_id]

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(OrderTest).run(result)
    assert (result.testsRun, result.errors, result.failures) == (1, [], [])
    assert django.events == set()


def test_event_goes_to_the_database_that_is_named_and_its_transaction_counts(django: Django, tmp_path: Path) -> None:
    from django.db import transaction

    second = Sqlite3(f"sqlite:///{tmp_path / 'second.db'}")
    configure_django({OTHER: django_database(second.url)})
    try:
        with transaction.atomic(using=OTHER):
            Outbox.create_tables(OTHER)
        with transaction.atomic(using=django.alias):
            first_id = Outbox.add(django.alias, *DOWN)
            with pytest.raises(Conflict, match="autocommit"):
                Outbox.add(OTHER, *DOWN)
            with transaction.atomic(using=OTHER):
                second_id = Outbox.add(OTHER, *DOWN)
        assert (django.events, second.events) == ({first_id}, {second_id})
        with pytest.raises(InvalidInput, match="Django has no database 'third'") as raised:
            Outbox.add("third", *DOWN)
        assert "second" in str(raised.value.hint)
    finally:
        forget_django(OTHER)


def test_migration_creates_the_tables_and_reversing_it_keeps_them(url: str) -> None:
    from django.core.management import call_command

    kind = Django(url)
    try:
        for _ in range(2):
            call_command("migrate", "fieldpost_outbox", database=kind.alias, verbosity=0)
        with kind.transaction():
            event_id = Outbox.add(kind.alias, *DOWN)
        call_command("migrate", "fieldpost_outbox", "zero", database=kind.alias, verbosity=0)
        call_command("migrate", "fieldpost_outbox", database=kind.alias, verbosity=0)
        assert kind.events == {event_id}
    finally:
        kind.close()


def test_django_prints_the_sql_of_the_migration(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    from django.core.management import call_command

    kind = Django(url)
    try:
        call_command("sqlmigrate", "fieldpost_outbox", "0001", database=kind.alias)
    finally:
        kind.close()
    printed = capsys.readouterr().out
    assert all(f"create table if not exists {table.name} (" in printed for table in TABLES)


MIGRATION = """
from alembic import op
from fieldpost.outbox.integrations.alembic import create_outbox_tables

revision, down_revision = "1", None

def upgrade():
    create_outbox_tables(op)

def downgrade():
    pass
"""
ENVIRONMENT = """
from alembic import context
from sqlalchemy import MetaData, create_engine
from fieldpost.outbox.integrations.alembic import leave_out_outbox_tables

options = {"target_metadata": MetaData(), "include_name": leave_out_outbox_tables}
url = context.config.get_main_option("sqlalchemy.url")
if context.is_offline_mode():
    context.configure(url=url, **options)
    with context.begin_transaction():
        context.run_migrations()
else:
    with create_engine(url).connect() as connection:
        context.configure(connection=connection, **options)
        with context.begin_transaction():
            context.run_migrations()
"""


def test_alembic_creates_the_tables_prints_them_and_does_not_drop_them(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from alembic import command
    from alembic.config import Config

    (tmp_path / "scripts/versions").mkdir(parents=True)
    (tmp_path / "scripts/env.py").write_text(ENVIRONMENT)
    (tmp_path / "scripts/script.py.mako").write_text("")
    (tmp_path / "scripts/versions/1.py").write_text(MIGRATION)
    kind = {"postgresql": Psycopg, "sqlite": Sqlite3, "mariadb": PyMysql}[url.partition(":")[0]](url)
    config = Config()
    config.set_main_option("script_location", str(tmp_path / "scripts"))
    drivers = {"postgresql": "postgresql+psycopg", "sqlite": "sqlite", "mariadb": "mariadb+pymysql"}
    scheme, _, rest = url.partition("://")
    config.set_main_option("sqlalchemy.url", f"{drivers[scheme]}://{rest}".replace("%", "%%"))
    command.upgrade(config, "head", sql=True)
    printed = capsys.readouterr().out
    command.upgrade(config, "head")
    with kind.transaction() as connection:
        event_id = kind.add(connection, *DOWN)
    command.check(config)  # raises if a table were to be dropped
    assert kind.events == {event_id}
    assert all(f"create table if not exists {table.name} (" in printed for table in TABLES)
    _execute_script(kind, printed)


def _execute_script(kind: Kind, script: str) -> None:
    """The printed script is valid on a database that has the tables already."""
    statements = [one.strip() for one in script.split(";\n") if "outbox" in one and "alembic_version" not in one]
    assert len(statements) > 3
    with kind.transaction() as connection:
        for statement in statements:
            kind.execute(connection, statement)

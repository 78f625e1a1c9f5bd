"""`Outbox.add` on every kind of connection: the event and the application's data commit together, or neither does."""

import json

import pytest

from fieldpost.core.errors import Conflict, InvalidInput
from support.outbox_kinds import Kind, rolled_back

PAYLOAD = {"service": 7, "group": "plant", "message": "down: Größe {{ x }}\r\n"}


@pytest.mark.req("EVT-02", "EVT-15", "EVT-20", "DEC-55")
def test_event_is_committed_with_the_data_and_not_before(kind: Kind) -> None:
    with kind.transaction() as connection:
        kind.execute(connection, "insert into things (id) values (1)")
        first = kind.add(connection, "SERVICE_DOWN", PAYLOAD)
        second = kind.add(connection, "SERVICE_DOWN", PAYLOAD, action="create", attributes={"service": "7"})
        assert (kind.events, kind.things) == (set(), set())
        seen = kind.added(connection)
    assert [(one.event_id, one.payload, one.action, one.attributes) for one in seen] == [
        (first, PAYLOAD, None, {}),
        (second, PAYLOAD, "create", {"service": "7"}),
    ]
    assert (kind.events, kind.things) == ({first, second}, {1})
    rows = dict(kind.query("select cast(event_outbox_id as char(36)), cast(payload as char(4000)) from event_outbox"))
    assert json.loads(rows[first]) == PAYLOAD


@pytest.mark.req("EVT-02", "DEC-55")
@pytest.mark.bad_input(44)
def test_event_of_a_transaction_that_is_rolled_back_never_existed(kind: Kind) -> None:
    with rolled_back(kind.transaction()) as connection:
        kind.execute(connection, "insert into things (id) values (1)")
        kind.add(connection, "SERVICE_DOWN", PAYLOAD)
    assert (kind.events, kind.things) == (set(), set())


@pytest.mark.req("DEC-55")
def test_savepoint_that_is_rolled_back_takes_only_its_own_event_along(kind: Kind) -> None:
    with kind.transaction() as connection:
        kind.execute(connection, "insert into things (id) values (1)")
        outer = kind.add(connection, "SERVICE_DOWN", PAYLOAD)
        with rolled_back(kind.savepoint(connection)):
            kind.execute(connection, "insert into things (id) values (2)")
            kind.add(connection, "SERVICE_DOWN", PAYLOAD)
        with kind.savepoint(connection):
            kept = kind.add(connection, "SERVICE_DOWN", PAYLOAD)
    assert (kind.events, kind.things) == ({outer, kept}, {1})


@pytest.mark.req("DEC-55", "DEC-85")
@pytest.mark.bad_input(44)
def test_connection_that_would_commit_the_event_on_its_own_is_rejected(kind: Kind) -> None:
    with kind.autocommit() as connection:
        with pytest.raises(Conflict, match="autocommit mode and has no open transaction") as raised:
            kind.add(connection, "SERVICE_DOWN", PAYLOAD)
        assert raised.value.code == "outbox.autocommit"
        kind.execute(connection, "insert into things (id) values (1)")  # still usable, and not in a transaction
    assert kind.events == set()


@pytest.mark.bad_input(44)
def test_closed_connection_is_rejected(kind: Kind) -> None:
    with kind.closed() as connection, pytest.raises(Conflict) as raised:
        kind.add(connection, "SERVICE_DOWN", PAYLOAD)
    assert raised.value.code in ("outbox.closed", "outbox.session")
    assert kind.events == set()


@pytest.mark.bad_input(44)
def test_failed_transaction_is_rejected(kind: Kind) -> None:
    with rolled_back(kind.transaction()) as connection:
        kind.fail(connection)
        if kind.has_failed_state:
            with pytest.raises(Conflict, match="can only be rolled back") as raised:
                kind.add(connection, "SERVICE_DOWN", PAYLOAD)
            assert raised.value.code == "outbox.failed_transaction"
        else:  # SQLite and MariaDB keep the transaction usable
            kind.add(connection, "SERVICE_DOWN", PAYLOAD)
    assert kind.events == set()


@pytest.mark.bad_input(42, 43)
def test_invalid_event_leaves_the_transaction_as_it_was(kind: Kind) -> None:
    with kind.transaction() as connection:
        kind.execute(connection, "insert into things (id) values (1)")
        for event_type, payload in [("SERVICE DOWN", {}), ("x" * 101, {}), ("X", [1]), ("X", {"a": "x" * 262144})]:
            with pytest.raises(InvalidInput):
                kind.add(connection, event_type, payload)
        good = kind.add(connection, "SERVICE_DOWN", {})
    assert (kind.events, kind.things) == ({good}, {1})

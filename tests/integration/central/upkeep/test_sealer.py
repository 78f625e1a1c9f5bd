"""The seals of the audit log on both databases: every tampering is found, and nothing else is reported."""

import asyncio
import contextlib
import itertools
import os
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection, select, text

from fieldpost.central.secrets.keyring import Keyring, SecretKey
from fieldpost.central.store.engine.database_url import open_store
from fieldpost.central.store.engine.store import Store
from fieldpost.central.store.notifications import audit, audit_seals
from fieldpost.central.store.schema.audit_tables import audit as audit_table
from fieldpost.central.upkeep.leader import Leader
from fieldpost.central.upkeep.options import UpkeepOptions
from fieldpost.central.upkeep.purge import Purge
from fieldpost.central.upkeep.sealer import Sealer
from fieldpost.central.watch.audit_verification import AuditVerifier, VerifiedPiece
from fieldpost.core.audit import AuditEntry, AuditKind, AuditStatus
from fieldpost.core.audit_seal import FIELDS, Tampering, entry_hash
from fieldpost.core.delivery.outcome import PermanentFailure
from fieldpost.core.ids import new_id
from fieldpost.testing import ManualClock
from support.centre import DEADLINE_S, Centre

KEY = SecretKey.of(bytes(range(32)))
YEAR = timedelta(days=365)


async def sealer_of(centre: Centre, heads: Path | None = None, node: str = "node-1") -> Sealer:
    leader = Leader(centre.store, node, centre.clock)
    await leader.campaign()
    return Sealer(centre.store, centre.clock, leader, Keyring([KEY]), YEAR, heads)


async def verified(centre: Centre, trusted: bytes = KEY.public_key) -> list[VerifiedPiece]:
    verifier, number = AuditVerifier(centre.store, [trusted], YEAR), 1
    pieces = [await verifier.piece(number)]
    while (next_ := pieces[-1].next_batch) is not None:
        pieces.append(await verifier.piece(next_))
    return pieces


async def kinds(centre: Centre, **more: bytes) -> list[Tampering]:
    return [finding.kind for piece in await verified(centre, **more) for finding in piece.findings]


def entry(centre: Centre, **more: object) -> AuditEntry:
    now = centre.clock.now()
    given = {"target": "ops", "request_summary": "list.change", "extra": {"b": 1, "a": ["é", None, 2.5]}}
    return AuditEntry(
        event_id=new_id(now, os.urandom(10)),
        occurred_at=now,
        kind=AuditKind.OPERATOR_ACTION,
        status=AuditStatus.SUBMITTED,
        actor="ada",
        **given | more,  # type: ignore[arg-type]
    )


@pytest.fixture
async def sealed(mailing: Centre) -> Centre:
    """Two batches: a delivered and a parked notification, then entries of operators."""
    sealer = await sealer_of(mailing)
    mailing.adapter.answer("ops", PermanentFailure("550 unknown\x1f é"))
    await mailing.send_many(2)
    await mailing.deliver()
    assert await sealer.sweep() > 0
    await mailing.store.write(audit.add, [entry(mailing), entry(mailing, extra=None, target=None)])
    assert await sealer.sweep() == 2
    return mailing


async def tamper(centre: Centre, *statements: str) -> None:
    """Change the database behind our back, as somebody with its password can."""

    def run(conn: Connection) -> None:
        if conn.dialect.name == "postgresql":
            conn.execute(text("alter table audit disable trigger user"))
        else:
            conn.execute(text("drop trigger keep_audit_update"))
            conn.execute(text("update audit_purges set is_purging = true"))
        for statement in statements:
            conn.execute(text(statement))

    await centre.store.write(run)


@pytest.mark.threat(9)
async def test_an_untouched_log_verifies(sealed: Centre) -> None:
    (piece,) = await verified(sealed)
    assert (piece.findings, piece.unsealed, piece.last_batch) == ([], 0, 2)
    assert [(piece.entries,)] == await sealed.rows("select count(*) from audit")
    await sealed.store.write(audit.add, [entry(sealed)])
    (piece,) = await verified(sealed)
    assert (piece.findings, piece.unsealed) == ([], 1)


@pytest.mark.threat(9)
@pytest.mark.parametrize(
    ("statements", "wanted"),
    [
        (["update audit set actor = 'bob' where sequence = 3"], [Tampering.EDITED]),
        (["update audit set extra = null where extra is not null"], [Tampering.EDITED]),
        (["delete from audit where sequence = 3"], [Tampering.REMOVED]),
        (
            [
                "update audit set sequence = 900 where sequence = 3",
                "update audit set sequence = 3 where sequence = 4",
                "update audit set sequence = 4 where sequence = 900",
            ],
            [Tampering.REORDERED, Tampering.REORDERED],
        ),
        (["update audit_seals set purged_to = sealed_at where number = 2"], [Tampering.BATCH_EDITED]),
        (["update audit_seals set signature = previous where number = 1"], [Tampering.BATCH_UNSIGNED]),
        (["delete from audit_seals where number = 1"], [Tampering.BATCH_REMOVED]),
    ],
)
async def test_direct_change_of_an_entry_is_found(
    sealed: Centre, statements: list[str], wanted: list[Tampering]
) -> None:
    await tamper(sealed, *statements)
    found = await kinds(sealed)
    assert found[: len(wanted)] == wanted


@pytest.mark.threat(9)
async def test_an_inserted_entry_is_found(sealed: Centre) -> None:
    forged = """
        insert into audit (sequence, event_id, occurred_at, ingested_at, channel, kind, status, actor)
        select {0}, '00000000-0000-7000-8000-00000000{0}', occurred_at, ingested_at, channel, kind, status, 'bob'
        from audit where sequence = 1
    """
    await sealed.execute(forged.format(2000))  # the sealer reads past the numbers before it
    await (await sealer_of(sealed)).sweep()
    await sealed.execute("update audit_seals set gaps = '[]'")  # as ten minutes later
    assert await kinds(sealed) == []
    await sealed.execute(forged.format(1500))
    assert await kinds(sealed) == [Tampering.INSERTED]


@pytest.mark.threat(9)
async def test_seals_of_another_key_are_not_trusted(sealed: Centre) -> None:
    other = SecretKey.of(bytes(32))
    assert await kinds(sealed, trusted=other.public_key) == [Tampering.BATCH_UNSIGNED]


@pytest.mark.threat(9)
@pytest.mark.parametrize("statement", ["update audit set actor = 'bob'", "delete from audit"])
async def test_the_database_refuses_changes_of_entries(sealed: Centre, statement: str) -> None:
    with pytest.raises(Exception, match="audit entries cannot be changed or deleted"):
        await sealed.execute(statement)


async def test_hashes_of_the_database_are_those_of_the_documented_form(sealed: Centre) -> None:
    def look(conn: Connection) -> tuple[list[bytes], list[bytes]]:
        rows = conn.execute(select(*(audit_table.c[name] for name in FIELDS)).order_by(audit_table.c.sequence))
        return [e.hash for e in audit_seals.stored_entries(conn, 1, 10**6)], [entry_hash(row) for row in rows]

    theirs, ours = await sealed.store.read(look)
    assert theirs == ours
    assert len(ours) > 5


@pytest.mark.threat(9)
async def test_a_purge_leaves_the_log_verifiable(sealed: Centre, clock: ManualClock, tmp_path: Path) -> None:
    clock.advance(YEAR.total_seconds() + 60)
    await sealed.store.write(audit.add, [entry(sealed)])
    leader = Leader(sealed.store, "node-1", clock)
    await leader.campaign()
    assert await Purge(sealed.store, clock, leader, UpkeepOptions()).sweep()
    assert await sealed.rows("select count(*) from audit") == [(1,)]
    assert await kinds(sealed) == []  # before and after the sealer has signed how far the purge came
    sealer = await sealer_of(sealed)
    await sealer.sweep()
    assert await kinds(sealed) == []
    await tamper(sealed, "delete from audit")
    assert await kinds(sealed) == [Tampering.REMOVED]


@pytest.mark.threat(9)
@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)  # SQLite has one writer: nothing commits late
async def test_an_entry_that_commits_late_joins_a_later_batch(sealed: Centre) -> None:
    sealer = await sealer_of(sealed)
    other = open_store(sealed.store.url)
    inserted, may_commit = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(conn: Connection) -> None:
        from sqlalchemy.util import await_only

        audit.add(conn, [entry(sealed, target="late")])
        loop.call_soon(inserted.set)
        await_only(may_commit.wait())

    try:
        writing = asyncio.create_task(other.write(slow))
        async with asyncio.timeout(DEADLINE_S):
            await inserted.wait()
        await sealed.store.write(audit.add, [entry(sealed, target="early")])
        assert await sealer.sweep() == 1
        assert await kinds(sealed) == []
        may_commit.set()
        await writing
        assert await kinds(sealed) == []  # committed, not sealed yet, and known as a gap
        assert await sealer.sweep() == 1
        assert await kinds(sealed) == []
        (newest,) = await sealed.rows("select number, low from audit_seals order by number desc limit 1")
        (high,) = await sealed.rows("select max(high) from audit_seals")
        assert newest[1] < high[0]  # type: ignore[operator]
    finally:
        may_commit.set()
        await other.close()


@pytest.mark.threat(9)
async def test_two_concurrent_leaders_make_one_chain(mailing: Centre) -> None:
    first, second = await sealer_of(mailing), await sealer_of(mailing, node="node-2")
    second._leader = first._leader
    for _ in range(5):
        await mailing.store.write(audit.add, [entry(mailing) for _ in range(50)])
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(first.sweep(), second.sweep())
    assert await kinds(mailing) == []
    assert await mailing.rows("select sum(count) from audit_seals") == await mailing.rows("select count(*) from audit")


class RolledBackError(Exception):
    """Ends a transaction without a commit."""


@pytest.mark.threat(9)
@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)  # SQLite has one node
async def test_a_log_that_two_nodes_write_and_seal_at_the_same_time_verifies(mailing: Centre) -> None:
    """Their transactions overlap, so numbers are committed in another order; every fifth transaction is rolled back.

    Writing goes on until more than five batches were sealed meanwhile.
    """

    def write(conn: Connection, number: int) -> None:
        for _ in range(2):
            audit.add(conn, [entry(mailing) for _ in range(1 + number % 7)])
        if number % 5 == 0:
            raise RolledBackError

    async def work(store: Store) -> None:
        for number in itertools.count():
            if number >= 40 and len(batches) > 5:
                return
            with contextlib.suppress(RolledBackError):
                await store.write(write, number)

    async def seal(sealer: Sealer) -> None:
        while not written.is_set():
            if count := await sealer.sweep():
                batches.append(count)

    batches: list[int] = []
    written = asyncio.Event()
    other = open_store(mailing.store.url)
    first = await sealer_of(mailing)
    second = Sealer(other, mailing.clock, first._leader, Keyring([KEY]), YEAR)
    try:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            sealing = [group.create_task(seal(sealer)) for sealer in (first, second)]
            await asyncio.gather(*(work(store) for store in (mailing.store, other) for _ in range(4)))
            written.set()
            await asyncio.gather(*sealing)
        await first.sweep()
    finally:
        await other.close()
    assert await kinds(mailing) == []
    [(count, stored)] = await mailing.rows("select sum(count), (select count(*) from audit) from audit_seals")
    assert int(str(count)) == stored


async def test_heads_are_written_to_the_file_and_an_unwritable_file_stops_nothing(
    mailing: Centre, tmp_path: Path
) -> None:
    heads = tmp_path / "heads"
    sealer = await sealer_of(mailing, heads)
    await mailing.send()
    await sealer.sweep()
    (line,) = heads.read_text().splitlines()
    number, head, _ = line.split()
    ((stored,),) = await mailing.rows("select head from audit_seals")
    assert (number, head) == ("1", bytes(stored).hex())  # type: ignore[call-overload]
    heads.unlink()
    heads.mkdir()
    await mailing.send()
    assert await sealer.sweep() == 1


async def test_without_a_key_nothing_is_sealed_and_nothing_fails(mailing: Centre) -> None:
    leader = Leader(mailing.store, "node-1", mailing.clock)
    await leader.campaign()
    await mailing.send()
    assert await Sealer(mailing.store, mailing.clock, leader, Keyring(), YEAR).sweep() == 0

"""`fieldpost audit`: as people and programs use it."""

import json
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from fieldpost.central.store.engine.database_url import open_store, parse_url
from fieldpost.central.upkeep.leader import Leader
from fieldpost.central.upkeep.sealer import Sealer
from fieldpost.testing import ManualClock
from support.commands import Cli
from support.front import open_front, served


async def test_the_log_is_listed_filtered_and_exported(cli: Cli) -> None:
    parked = await cli.front.park("550 no such user")
    ran = await cli("audit", "list", "--errors", role="viewer")
    assert ran.code == 0, ran.err
    assert "parked" in ran.out
    assert "550 no such user" in ran.out
    assert "notify_send" not in ran.out
    ran = await cli("audit", "list", "--about", parked, "--limit", "1", "--json", role="viewer")
    page = json.loads(ran.out)
    assert [one["status"] for one in page["entries"]] == ["parked"]
    ran = await cli("audit", "list", "--about", parked, "--limit", "1", "--cursor", page["next_cursor"])
    assert "attempted" in ran.out
    assert "More results: --cursor" in ran.out

    ran = await cli("audit", "export", "--about", parked)
    assert json.loads(ran.out.splitlines()[-1])["exported"] == 3
    target = cli.folder / "log.csv"
    target.write_text("what stood there before")
    ran = await cli("audit", "export", "--format", "csv", "--about", parked, "--output", "log.csv")
    assert (ran.code, ran.out, ran.err) == (0, "", "Exported 3 entries to log.csv.\n")
    assert target.read_text().count("notify_deliver") == 2
    assert [path.name for path in cli.folder.glob("*log*")] == ["log.csv"]


async def test_failed_export_keeps_the_existing_file(cli: Cli) -> None:
    target = cli.folder / "log.ndjson"
    target.write_text("what stood there before")
    ran = await cli("audit", "export", "--output", "log.ndjson", role="operator")
    assert ran.code == 6
    assert "access.role" in ran.err
    assert target.read_text() == "what stood there before"
    assert [path.name for path in cli.folder.glob("*log*")] == ["log.ndjson"]
    ran = await cli("audit", "export", "--output", "nowhere/log.ndjson")
    assert (ran.code, "cannot write" in ran.err) == (3, True)
    ran = await cli("audit", "list", "--errors", "--status", "parked")
    assert (ran.code, "cli.both" in ran.err) == (3, True)


async def seal(cli: Cli, heads: Path | None = None) -> int:
    leader = Leader(cli.front.centre.store, "node-1", cli.front.clock)
    await leader.campaign()
    keyring = cli.front.centre.keyring
    return await Sealer(cli.front.centre.store, cli.front.clock, leader, keyring, timedelta(days=365), heads).sweep()


@pytest.mark.threat(9)
async def test_the_log_is_verified_through_central(cli: Cli) -> None:
    await cli.front.park()
    count = await seal(cli)
    ran = await cli("audit", "verify")
    assert (ran.code, ran.out) == (
        0,
        f"Verified {count} entries in 1 batch: nothing was changed.\nNot sealed yet: 0 entries.\n",
    )
    ran = await cli("audit", "verify", "--since", "2100-01-01T00:00:00Z", "--json")
    assert json.loads(ran.out) == {"findings": [], "entries": 0, "batches": 0, "unsealed": 0}
    ran = await cli("audit", "verify", role="operator")
    assert (ran.code, "access.role" in ran.err) == (6, True)


@pytest.mark.threat(9)
async def test_a_database_file_is_verified_with_the_public_key_and_the_heads(cli: Cli) -> None:
    heads = cli.folder / "heads"
    await cli.front.park()
    await seal(cli, heads)
    keys = await cli("audit", "public-keys")
    (cli.folder / "keys").write_text(keys.out)

    database = str(parse_url(cli.front.centre.store.url).database)
    for suffix in ("", "-wal"):
        shutil.copy(database + suffix, cli.folder / f"older.db{suffix}")
    await cli.front.park()
    await seal(cli, heads)
    for suffix in ("", "-wal"):
        shutil.copy(database + suffix, cli.folder / f"edited.db{suffix}")

    with_keys = ("--public-key", "keys", "--heads", "heads")
    ran = await cli("audit", "verify", "--store", "older.db", *with_keys)
    assert (ran.code, "the database ends at batch 1, before batch 2 of the heads file" in ran.out) == (9, True)
    ran = await cli("audit", "verify", "--store", "edited.db", *with_keys)
    assert (ran.code, ran.err) == (0, "")

    store = open_store(f"sqlite:///{cli.folder / 'edited.db'}")

    def forge(conn: Connection) -> None:
        conn.execute(text("drop trigger keep_audit_update"))
        conn.execute(text("update audit set actor = 'bob' where sequence = 2"))

    await store.write(forge)
    await store.close()
    ran = await cli("audit", "verify", "--store", "edited.db", *with_keys)
    assert (ran.code, "edited: entry 2 differs from what batch 1 sealed (event " in ran.out) == (9, True)
    (cli.folder / "heads").write_text("1 " + "0" * 64 + " 2026-11-16T08:00:00Z\n2 torn")
    ran = await cli("audit", "verify", "--store", "older.db", *with_keys)
    assert (ran.code, "batch 1 differs from the heads file" in ran.out) == (9, True)


@pytest.mark.threat(9)
async def test_a_database_is_verified_by_its_url_and_only_the_heads_show_that_its_end_is_missing(
    pg_url: str, tmp_path: Path
) -> None:
    async with open_front(pg_url, ManualClock()) as front, served(front.app) as url:
        cli, heads = Cli(front, url, tmp_path), tmp_path / "heads"
        (tmp_path / "keys").write_text((await cli("audit", "public-keys")).out)
        for _ in range(2):
            await front.park()
            await seal(cli, heads)
        verify = ("audit", "verify", "--store", pg_url, "--public-key", "keys")
        ran = await cli(*verify, "--heads", "heads")
        assert (ran.code, "in 2 batches: nothing was changed" in ran.out) == (0, True), ran.err

        def cut_off(conn: Connection) -> None:
            conn.execute(text("alter table audit disable trigger user"))
            conn.execute(text("delete from audit where sequence > (select high from audit_seals where number = 1)"))
            conn.execute(text("delete from audit_seals where number = 2"))

        await front.centre.store.write(cut_off)
        assert (await cli(*verify)).code == 0
        ran = await cli(*verify, "--heads", "heads")
        assert (ran.code, "the database ends at batch 1, before batch 2 of the heads file" in ran.out) == (9, True)

        # Central goes on: it seals another batch 2, and adds its head to the same file.
        await front.park()
        await seal(cli, heads)
        assert (await cli(*verify)).code == 0
        for more in ((), ("--since", "2100-01-01T00:00:00Z")):
            ran = await cli(*verify, "--heads", "heads", *more)
            assert (ran.code, "the heads file has two heads of batch 2: " in ran.out) == (9, True)


async def test_bad_options_of_verify_are_named(cli: Cli) -> None:
    (cli.folder / "bad").write_text("not a key\nnor this\n")
    for options, text_ in (
        (["--store", "x.db"], "--store and --public-key belong together"),
        (["--store", "x.db", "--public-key", "nowhere"], "cannot read nowhere"),
        (["--store", "x.db", "--public-key", "bad"], "line 1 of bad is not a public key in hex"),
        (["--heads", "bad"], "line 1 of bad is not `number head time`"),
        (["--since", "today"], "since must be a time with its zone"),
    ):
        ran = await cli("audit", "verify", *options)
        assert (ran.code, text_ in ran.err) == (3, True), ran.err
    (cli.folder / "keys").write_text("00" * 32)
    ran = await cli("audit", "verify", "--store", "x.db", "--public-key", "keys")
    assert "there is no database file x.db" in ran.err

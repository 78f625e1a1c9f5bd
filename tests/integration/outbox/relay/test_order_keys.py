"""Order keys: rows of one key are published one after another, and only an unanswered one holds the others up."""

import pytest

from fieldpost.outbox.relay.database import RelayDatabase
from fieldpost.outbox.relay.relay import open_database
from fieldpost.outbox.relay.sqlite import newest_sqlite
from fieldpost.outbox.relay.transactions import OutboxTransactions
from support.outbox_apps import AppDatabase, Relaying
from support.publish_line import publish_line


async def claim(database: RelayDatabase, transactions: OutboxTransactions) -> list[str]:
    claimed = await database.run(lambda: transactions.claim(100, 1_000_000, 60.0))
    return [row.event_id for row in claimed]


@pytest.mark.dec("DEC-55", "DEC-84")
async def test_rows_of_a_key_reach_central_in_their_order_with_several_relays(
    app: AppDatabase, relaying: Relaying
) -> None:
    ids = {key: [] for key in "abc"}
    for number in range(30):
        key = "abc"[number % 3]
        ids[key] += app.add(order_key=key)
    async with relaying.running(), relaying.running(), relaying.running():
        await app.until_status("SENT", [one for key in ids for one in ids[key]])
    arrived = [str(row[0]) for row in await relaying.front.centre.rows("select event_id from events order by rowid")]
    for key, wanted in ids.items():
        assert [one for one in arrived if one in wanted] == wanted, key


@pytest.mark.dec("DEC-55", "DEC-84")
async def test_claim_takes_only_the_first_row_of_each_key(app: AppDatabase, relaying: Relaying) -> None:
    first = app.add(order_key="a") + app.add(order_key="b")
    app.add(2, order_key="a")
    free = app.add(2)
    database = open_database(relaying.options(), newest_sqlite())
    one, two = (OutboxTransactions(app.kind, name) for name in ("one", "two"))
    assert sorted(await claim(database, one)) == sorted(first + free)
    assert await claim(database, two) == [], "the others wait while the first ones are in flight"
    await database.close()


@pytest.mark.dec("DEC-84")
async def test_a_rejected_row_lets_the_rows_behind_it_pass(app: AppDatabase, relaying: Relaying) -> None:
    [rejected] = app.add(order_key="a", event_type="nobody.registered")
    behind = app.add(2, order_key="a")
    async with relaying.running(retry="fixed:1h:0"):
        await app.until_status("SENT", behind)
    assert app.row(rejected) == ("FAILED",)


@pytest.mark.dec("DEC-84")
async def test_an_unanswered_row_holds_up_the_rows_behind_it(app: AppDatabase, relaying: Relaying) -> None:
    [first] = app.add(order_key="a")
    async with publish_line(relaying.url) as line:
        line.is_holding = True
        async with relaying.running(url=line.url, timeout_s=0.3, retry="fixed:1h:0"):
            await app.until_status("FAILED", [first])
    [behind] = app.add(order_key="a")
    async with relaying.running():
        await app.until_status("SENT", app.add(order_key="b"))
        assert app.row(behind, "status, claim_token") == ("PENDING", 0)
        app.execute("update event_outbox set due_at = created_at")
        await app.until_status("SENT", [first, behind])

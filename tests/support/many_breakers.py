"""Two nodes on PostgreSQL and thousands of subscriptions whose breakers are open: hold, probe, release, record."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from sqlalchemy import Connection, insert
from sqlalchemy import text as sql_text

from fieldpost.central.dispatch.dispatcher import Dispatcher
from fieldpost.central.store.events import subscriptions
from fieldpost.central.store.schema.event_tables import subscriptions as table
from fieldpost.core.delivery.outcome import Delivered, Evidence, TransientFailure
from fieldpost.testing import ManualClock
from support.centre import Centre, ScriptedAdapter, open_centre

ROWS_EACH = 3
BREAK_S = 300.0
UNAVAILABLE = TransientFailure("503", evidence=Evidence.FAILS)
ROUNDS_MAX = 400


@dataclass
class BreakerRun:
    """What happened to the breakers of healthy and failing subscriptions."""

    held: int = 0
    """Rows held when all were."""
    probes: list[Counter[str]] = field(default_factory=list)
    """Deliveries per failing subscription, by period. Only these: a working one is delivered to after its probe."""
    delivered: int = 0
    deadlocks: int = 0
    by_node: Counter[str] = field(default_factory=Counter)


async def hold_probe_and_release(url: str, count: int) -> BreakerRun:
    """Half of the subscriptions work again at the first probe, the others never; two nodes tend them at once."""
    clock = ManualClock()
    run = BreakerRun()
    async with AsyncExitStack() as stack:
        centres = [await stack.enter_async_context(open_centre(url, clock)) for _ in range(2)]
        first = centres[0]
        adapter = ScriptedAdapter("webhook")
        for centre in centres:
            centre.adapters = {"webhook": adapter}
        names = [f"hook-{number:05}" for number in range(count)]
        failing = set(names[1::2])
        adapter.always = {name: UNAVAILABLE if name in failing else Delivered() for name in names}
        await first.store.write(_fill, names, clock)
        before = await _deadlocks(first)
        nodes = [centre.dispatcher(f"node-{number}") for number, centre in enumerate(centres, 1)]
        for node in nodes:
            await stack.enter_async_context(node.running())

        # Every row is due, and every breaker is open: all rows are put behind their breakers without an attempt.
        await _tend(nodes, clock, lambda: _is_all_held(first, count * ROWS_EACH))
        assert adapter.count == 0
        run.held = count * ROWS_EACH

        # The period ends. One probe each; half of the breakers close and their rows are released and delivered.
        clock.advance(BREAK_S)
        await _tend(nodes, clock, lambda: _has_settled(first, len(names) - len(failing), len(failing), clock))
        run.probes.append(Counter(name for name in map(_name, adapter.envelopes) if name in failing))
        run.delivered = sum(_name(envelope) not in failing for envelope in adapter.envelopes)

        # The next period: the failing ones are probed once more, the others are left alone.
        begun = adapter.count
        clock.advance(BREAK_S)
        await _tend(nodes, clock, lambda: _has_settled(first, len(names) - len(failing), len(failing), clock))
        run.probes.append(Counter(map(_name, adapter.envelopes[begun:])))
        run.deadlocks = await _deadlocks(first) - before
        for node_id, attempts in await first.rows("select node_id, count(*) from attempts group by node_id"):
            run.by_node[str(node_id)] = int(str(attempts))
    return run


def _name(envelope: object) -> str:
    return str(envelope.list_name)  # type: ignore[attr-defined]


async def _tend(nodes: list[Dispatcher], clock: ManualClock, is_done: Callable[[], Awaitable[bool]]) -> None:
    """Both nodes sweep at the same time, a second apart, until it is done."""
    for _ in range(ROUNDS_MAX):
        if await is_done():
            return
        clock.advance(1)
        await asyncio.gather(*(node.sweep() for node in nodes))
        await asyncio.gather(*(node.idle() for node in nodes))
    raise AssertionError(f"not done after {ROUNDS_MAX} sweeps")


async def _is_all_held(centre: Centre, count: int) -> bool:
    return await centre.rows("select count(*) from notifications where held_by = delivery_key") == [(count,)]


async def _has_settled(centre: Centre, healthy: int, failing: int, clock: ManualClock) -> bool:
    """All rows of healthy subscriptions are delivered, and the breakers of the others are open for another period."""

    def look(conn: Connection) -> tuple[int, int]:
        delivered = conn.exec_driver_sql("select count(*) from notifications where status = 'delivered'").scalar_one()
        is_open = sql_text("select count(*) from breakers where state = 'open' and open_until > :now")
        return delivered, conn.execute(is_open, {"now": clock.now()}).scalar_one()

    return await centre.store.read(look) == (healthy * ROWS_EACH, failing)


async def _deadlocks(centre: Centre) -> int:
    def look(conn: Connection) -> int:
        conn.exec_driver_sql("select pg_stat_clear_snapshot()")
        found = conn.exec_driver_sql("select deadlocks from pg_stat_database where datname = current_database()")
        return int(found.scalar_one())

    return await centre.store.read(look)


def _fill(conn: Connection, names: list[str], clock: ManualClock) -> None:
    """Active subscriptions, due rows and open breakers, by one statement each."""
    subscriptions.lock_for_change(conn)
    now = clock.now()
    conn.execute(
        insert(table),
        [
            {
                "subscription_id": f"00000000-0000-7000-8000-{number:012}",
                "name": name,
                "owner": "team",
                "filter": [],
                "state": "active",
                "settings": {"url": f"https://{name}.example/"},
                "secrets": {},
                "created_at": now,
                "updated_at": now,
            }
            for number, name in enumerate(names)
        ],
    )
    at = {"now": now, "until": now.fromtimestamp(now.timestamp() + BREAK_S, now.tzinfo)}
    conn.execute(
        sql_text(
            f"""insert into notifications (notification_id, type, list_name, subject, body, status, source_site_id,
                delivery_key, digest, created_at, due_at, cycle_started_at)
            select gen_random_uuid(), 'webhook', name, '', '', 'pending', 'app:shop',
                'subscription:' || subscription_id, 'x', :now, :now, :now
            from subscriptions cross join generate_series(1, {ROWS_EACH})"""
        ),
        at,
    )
    conn.execute(
        sql_text(
            """insert into breakers (key, state, failures, first_failure_at, last_failure_at, last_error, open_until,
                version)
            select 'subscription:' || subscription_id, 'open', 10, :now, :now, '503', :until, 1 from subscriptions"""
        ),
        at,
    )


def check(run: BreakerRun, count: int) -> None:
    """Every breaker has one probe per period between both nodes, and everything that can be delivered is."""
    assert run.held == count * ROWS_EACH
    for probes in run.probes:
        assert len(probes) == count // 2
        assert set(probes.values()) == {1}
    assert run.delivered == count // 2 * ROWS_EACH
    assert run.deadlocks == 0
    assert len(run.by_node) == 2, "both nodes deliver"

"""Many notifications by one command: filters, groups, retry and discard in bulk, interrupted and followed again."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from fieldpost.core.notification import Status
from support.commands import Cli
from support.front import Front


@pytest.fixture
async def at_work(front: Front) -> AsyncIterator[None]:
    """A node that carries bulk actions out."""
    running = asyncio.create_task(front.operate.bulk_actions.run())
    yield
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


def ids_in(out: str) -> set[str]:
    return {one["notification_id"] for one in json.loads(out)["notifications"]}


@pytest.mark.req("KPI-11", "KPI-12")
async def test_the_list_takes_every_filter(cli: Cli) -> None:
    front = cli.front
    pump = await front.park("550 no such user", subject="Pump 3 is hot")
    tank = await front.park("554 too large", subject="Tank 12 is low")
    front.clock.advance(3600)
    await front.centre.add_list("night")
    stuck = await front.centre.send("night", site="plant-8", subject="Door is open")
    front.clock.advance(3600)
    young = await front.centre.send("night", subject="Gate is open")
    groups = json.loads((await cli("notifications", "groups", "--json", role="viewer")).out)["groups"]
    key = next(group["key"] for group in groups if group["example_id"] == tank)
    border = (await front.centre.get(stuck)).created_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    for arguments, found in {
        ("--status", "parked"): {pump, tank},
        ("--status", "parked", "--status", "pending"): {pump, tank, stuck, young},
        ("--type", "email", "--list", "night"): {stuck, young},
        ("--site", "plant-8"): {stuck},
        ("--from", border): {stuck, young},
        ("--to", border): {pump, tank},
        ("--stuck",): {stuck},
        ("--overdue",): {stuck},
        ("--subject", "PUMP hot"): {pump},
        ("--error", key): {tank},
    }.items():
        assert ids_in((await cli("notifications", "list", *arguments, "--json", role="viewer")).out) == found, arguments


async def test_groups_show_parked_notifications_by_error(cli: Cli) -> None:
    assert (await cli("notifications", "groups", role="viewer")).out == "No parked notifications.\n"
    for number in range(3):
        await cli.front.park(f"554 mail {number} is too large")
    await cli.front.park("550 no such user")
    lines = (await cli("notifications", "groups", role="viewer")).out.splitlines()
    assert [line.split()[1] for line in lines[1:]] == ["3", "1"]
    assert "554 mail # is too large" in lines[1]


@pytest.mark.req("CMD-04", "CMD-08")
@pytest.mark.usefixtures("at_work")
async def test_matching_notifications_are_counted_then_retried_with_a_reason(cli: Cli) -> None:
    ids = [await cli.front.park(subject=f"Pump {number} is hot") for number in range(3)]
    other = await cli.front.park(subject="Tank 12 is low")
    dry = await cli("notifications", "retry", "--subject", "pump", "--dry-run", role="operator")
    assert (dry.code, dry.out) == (0, "Would retry 3 parked notifications.\n")
    assert {(await cli.front.centre.get(i)).status for i in ids} == {Status.PARKED}
    ran = await cli("notifications", "retry", "--subject", "pump", "--reason", "mended", role="operator")
    assert (ran.code, ran.out) == (0, "Bulk action finished: 3 of 3 retried.\n")
    action_id = ran.err.split()[2]
    assert {(await cli.front.centre.get(i)).status for i in ids} == {Status.PENDING}
    assert (await cli.front.centre.get(other)).status is Status.PARKED
    entry = (await cli.front.centre.audit(ids[0]))[-1]
    assert (entry.request_summary, entry.bulk_action_id) == ("mended", action_id)
    assert f"{action_id}  " in (await cli("bulk-actions", "list", role="viewer")).out
    shown = (await cli("bulk-actions", "show", action_id, role="viewer")).out
    assert "mended" in shown
    assert "subject pump" in shown


@pytest.mark.req("CMD-05")
@pytest.mark.usefixtures("at_work")
async def test_exit_code_shows_that_some_rows_failed(cli: Cli) -> None:
    parked, delivered = await cli.front.park(), await cli.front.deliver()
    ran = await cli("notifications", "discard", parked, delivered, "--reason", "old", role="operator")
    assert ran.code == 5
    assert ran.out.startswith("Bulk action finished: 1 of 2 discarded; 1 changed by someone else.")
    action_id = ran.err.split()[2]
    rows = (await cli("bulk-actions", "rows", action_id, "--outcome", "conflict", role="viewer")).out
    assert delivered in rows
    assert "conflict" in rows
    assert parked not in rows
    ended = await cli("bulk-actions", "cancel", action_id, role="operator")
    assert (ended.code, "bulk.ended" in ended.err) == (5, True)


@pytest.mark.bad_input(49)
async def test_bulk_action_continues_after_ctrl_c_and_can_be_followed_again(cli: Cli) -> None:
    """Nobody carries it out until the command was interrupted, so that it is in the middle then."""
    ids = [await cli.front.park() for _ in range(3)]
    process = await cli.begin("notifications", "discard", "--all", "--reason", "old", role="operator")
    assert process.stderr is not None
    async with asyncio.timeout(60):
        told = (await process.stderr.readline()).decode()
        action_id = told.split()[2]
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    assert (process.returncode, out, err) == (130, b"", b"")
    assert f"fieldpost bulk-actions show {action_id} --follow" in told
    await cli.front.operate.bulk_actions.sweep()
    followed = await cli("bulk-actions", "show", action_id, "--follow", role="viewer")
    assert (followed.code, followed.out) == (0, "Bulk action finished: 3 of 3 discarded.\n")
    assert {(await cli.front.centre.get(i)).status for i in ids} == {Status.DISCARDED}


@pytest.mark.bad_input(49)
async def test_wrong_options_of_a_bulk_action_start_nothing(cli: Cli) -> None:
    parked = await cli.front.park()
    for arguments in (
        ("retry",),
        ("retry", "--list", "ops"),
        ("retry", parked, "--all", "--reason", "x"),
        ("discard", parked, parked.replace("0", "1", 1)),
    ):
        ran = await cli("notifications", *arguments, role="operator")
        assert (ran.code, ran.out) == (2, ""), arguments
    bad = await cli("notifications", "retry", "--from", "yesterday", "--reason", "x", role="operator")
    assert (bad.code, "filter.time" in bad.err) == (3, True)
    assert "No bulk actions yet" in (await cli("bulk-actions", "list", role="viewer")).out

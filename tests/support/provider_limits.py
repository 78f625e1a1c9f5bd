"""A crowd of notifications to a Telegram and a Slack that enforce their real limits, sent by two nodes."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from fieldpost.central.adapters.slack.adapter import SlackAdapter
from fieldpost.central.adapters.telegram.adapter import TelegramAdapter
from fieldpost.central.operate.list_spec import ListSpec
from fieldpost.central.operate.operate import Operate
from fieldpost.central.watch.watch import Watch
from fieldpost.core.delivery.routing import traits_of
from fieldpost.testing import ManualClock
from fieldpost.testing.providers import FakeSlack, FakeTelegram, ProviderServer
from support.attempt_counter import AttemptCounter
from support.centre import Centre, ScriptedAdapter
from support.front import ADMIN
from support.provider_worlds import provider_outbound, server_context

TOO_MANY_MAX = 5
SETTLED_S = 10
"""By then all rows have their place in the queues: a critical one that comes later moves the others back."""
TOKEN = "123456:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"


@dataclass(frozen=True, slots=True)
class LimitsReport:
    """What became of the crowd."""

    sent: list[str]
    """All ids, in the order of submission."""
    critical: set[str]
    copies: Counter[str]
    too_many: dict[str, int]
    """The number of 429s by type."""
    arrived: dict[str, list[str]]
    """The ids that each room got, in order."""
    statuses: list[tuple[object, ...]]
    forecast_error: float
    """Of the last row: the difference to its real time, as a fraction of the wait."""


def check_crowd(report: LimitsReport) -> None:
    """Nothing is lost, parked or sent twice, hardly a request is turned away, critical ones are first, and the forecast
    is right."""
    assert report.copies == dict.fromkeys(report.sent, 1), "lost none, and no copy twice"
    assert report.statuses == [("delivered", 0)]
    assert max(report.too_many.values()) <= TOO_MANY_MAX, report.too_many
    assert report.forecast_error <= 0.1
    for ids in report.arrived.values():
        critical = [at for at, one in enumerate(ids) if one in report.critical]
        assert max(critical) < len(ids) // 2, "critical ones first, although they came last"


async def run_crowd(centre: Centre, clock: ManualClock, count: int, rooms: int, step_s: float) -> LimitsReport:
    """Submit `count` notifications within a minute to `rooms` rooms of each provider, and deliver them all.

    The clock moves by `step_s` at a time, and a row is sent at the next step, so a forecast is exact to one step only.
    A channel serves a burst at each step: the steps must be short enough for its lists to reach their own rates.
    """
    outbound = provider_outbound()
    async with (
        FakeTelegram(TOKEN, clock=clock, tls=server_context()) as telegram,
        FakeSlack(clock=clock, tls=server_context()) as slack,
    ):
        counter = AttemptCounter()
        centre.adapter = cast(ScriptedAdapter, counter)
        centre.adapters["telegram"] = counter.of(TelegramAdapter(outbound=outbound))
        centre.adapters["slack"] = counter.of(SlackAdapter(outbound=outbound))
        operate = Operate.over(centre.store, centre.adapters, clock, centre.keyring)
        names = await _set_up(centre, operate, telegram, slack, rooms)
        sent, critical = await _submit(centre, clock, names, count)
        watch = Watch.over(centre.store, clock, types={name: traits_of(one) for name, one in centre.adapters.items()})
        nodes = [centre.dispatcher(node) for node in ("node-a", "node-b")]
        forecast: tuple[str, datetime, datetime] | None = None
        last_at: dict[str, datetime] = {}
        seconds = 0.0
        async with nodes[0].running(), nodes[1].running():
            while len(telegram.copies) + len(slack.copies) < count:
                before = len(telegram.copies), len(slack.copies)
                await centre.drain(*nodes)
                for server, start in zip((telegram, slack), before, strict=True):
                    last_at |= {copy.notification_id: clock.now() for copy in server.copies[start:]}
                seconds += step_s
                if forecast is None and seconds >= SETTLED_S:
                    forecast = await _forecast(watch, sent)
                clock.advance(step_s)
        await outbound.close()
    assert forecast is not None
    row, at, expected = forecast
    return LimitsReport(
        sent=sent,
        critical=critical,
        copies=Counter([*telegram.ids(), *slack.ids()]),
        too_many={"telegram": _too_many(telegram), "slack": _too_many(slack)},
        arrived={copy.target: list(server.ids(copy.target)) for server in (telegram, slack) for copy in server.copies},
        statuses=await centre.rows("select distinct status, retry_count from notifications"),
        forecast_error=max(0, abs((last_at[row] - expected).total_seconds()) - step_s)
        / (expected - at).total_seconds(),
    )


async def _set_up(centre: Centre, operate: Operate, telegram: FakeTelegram, slack: FakeSlack, rooms: int) -> list[str]:
    settings = {"url": telegram.url}
    await operate.channels.add(ADMIN, "bot", "telegram", settings, secrets={"token": TOKEN}, is_default=True)
    await operate.channels.add(ADMIN, "hooks", "slack", {}, is_default=True)
    names = []
    for number in range(rooms):
        chat, room = f"telegram-{number}", f"slack-{number}"
        await operate.lists.add(ADMIN, ListSpec(name=chat, type="telegram", targets=[f"-{1000 + number}"]))
        secrets = {f"room-{number}": slack.hook(f"room-{number}")}
        await operate.lists.add(ADMIN, ListSpec(name=room, type="slack", targets=[f"room-{number}"], secrets=secrets))
        names += [chat, room]
    return names


async def _submit(centre: Centre, clock: ManualClock, names: list[str], count: int) -> tuple[list[str], set[str]]:
    """Every tenth one is critical, and comes last."""
    sent, critical = [], set()
    for number in range(count):
        severity = "critical" if number >= count * 9 // 10 else None
        one = await centre.send(names[number % len(names)], severity=severity)
        sent.append(one)
        if severity is not None:
            critical.add(one)
    return sent, critical


async def _forecast(watch: Watch, sent: list[str]) -> tuple[str, datetime, datetime] | None:
    """A row of Telegram's that waits longest, now, and when its turn comes."""
    found = [(one, await watch.notifications.detail(one)) for one in sent[-len(sent) // 5 :: 7]]
    waiting = [(one, detail) for one, detail in found if detail.next_attempt_at is not None]
    if not waiting:
        return None
    one, detail = max(waiting, key=lambda pair: str(pair[1].next_attempt_at))
    assert detail.next_attempt_at is not None
    return one, detail.as_of, detail.next_attempt_at


def _too_many(server: ProviderServer) -> int:
    return sum(reaction.status == 429 for reaction in server.refused)

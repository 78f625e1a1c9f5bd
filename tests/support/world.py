"""The sample world: a centre at 3 a.m. with all that a console can show, the same every time it is made.

Seven sites, of which one is offline, one late and one revoked; two channels, of which one's breaker is open; and
in the table notifications that were delivered, are parked in groups, retrying, held, stuck. A bulk action is half done,
another has ended, a third was halted; sites have parked calls, and intents wait for them. It is created by production
code (ingest, dispatcher, operator actions), under a clock that was moved through one night. Only what was
kept of the week before is written as it would have been kept.

    async with open_world(sqlite_url) as world:      for a test: `world.front` is an ordinary Front
        async with served(world.front.app) as url:
            ...

`world.places` says what the parameters of a page's path are in this world, by the parameter's name or by the noun that
stands before it in the path; `support.page_addresses` makes addresses of them. For people there is a command, to be run
in the folder `tests`:

    python -m support.pictures serve          a console with this world, which lives on; it prints where and who
    python -m support.pictures picture /      pictures of this address: light, dark and on a phone
    python -m support.pictures pictures       of every page
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from fieldpost.central.operate import bulk_step
from fieldpost.central.operate.bulk_actions import Chosen
from fieldpost.central.operate.list_spec import ListSpec
from fieldpost.central.store.figures import kpis, leases, nodes, samples
from fieldpost.central.store.sites import health as site_health
from fieldpost.central.upkeep.sampler import begin_of
from fieldpost.core.actor import Role
from fieldpost.core.bulk import BulkVerb
from fieldpost.core.delivery.outcome import Held, PermanentFailure, TransientFailure, fold
from fieldpost.core.ids import new_id
from fieldpost.core.kpi import Thresholds
from fieldpost.core.notification import Status, Target
from fieldpost.core.search.fingerprint import fingerprint_key
from fieldpost.core.search.notification_filter import Filter
from fieldpost.core.sites.health import Freshness
from fieldpost.core.sites.intent import IntentKind
from fieldpost.core.times import to_text
from fieldpost.link.messages import CallRow, CommandResult, Telemetry
from fieldpost.testing import ManualClock
from support.front import ADMIN, OPERATOR, Front, open_front
from support.sample import FAILED, REACHED
from support.world_channels import add_abonnement, add_chats, flood_chats
from support.world_events import publish_events
from support.world_past import SITES, health, keep_past

NIGHT = datetime(2026, 11, 15, 3, 14, tzinfo=UTC)
"""When the world stands still, for tests and pictures."""
WEEK = timedelta(days=7)
SHIFT = timedelta(hours=3)
"""So long before the end its notifications begin to come."""
VERSION = "0.9.0"

LISTS = {
    "ops": ("control.room@example.org", "shift.lead@example.org", "duty@example.org"),
    "night-shift": ("lee@example.org",),
    "maintenance": ("workshop@example.org", "kim@contractor.example"),
    "harbour-master": ("harbour.master@example.org",),
    "billing": ("billing@example.org",),
}
SAYINGS = (
    ("plant-north", "pump-3", "watch_pumps.py", "ops", "Pump 3: pressure low", "2.1 bar at the outlet, limit 2.5 bar."),
    ("plant-north", "tank-7", "watch_tanks.py", "ops", "Tank 7: level high", "93 % full, rising 2 % an hour."),
    (
        "plant-south",
        "boiler-1",
        "watch_heat.py",
        "ops",
        "Boiler 1: feed water cold",
        "61 °C at the inlet, limit 75 °C.",
    ),
    ("harbour", "crane-2", "watch_quay.py", "ops", "Crane 2: wind alarm", "Gusts of 19 m/s; hoisting has stopped."),
    ("quarry", "belt-4", "watch_belts.py", "ops", "Belt 4: slipping", "Drive at 1,480 rpm, belt at 1,120."),
    ("plant-north", "pump-3", "watch_pumps.py", "ops", "Pump 3: pressure normal", "2.8 bar for five minutes."),
    ("harbour", "tide-gauge", "watch_quay.py", "ops", "Tide gauge: silent", "No reading for ten minutes."),
)
EVERYONE = [role.name for role in SITES if role.busy]
UNKNOWN_USER = "550 5.1.1 <kim@contractor.example>: Recipient address rejected: User unknown in virtual mailbox table"
FULL = "552 5.2.2 <workshop@example.org>: mailbox full, 5120 MB of 5120 MB used"
LOGIN_REFUSED = "535 5.7.8 authentication failed: the password has expired"
GREYLISTED = "451 4.7.1 <lee@example.org>: greylisted, try again in 5 minutes"
REFUSED = "connecting to 127.0.0.1 port 2525 was refused"


@dataclass
class World:
    """The front, and where in it one finds what."""

    front: Front
    places: dict[str, str] = field(default_factory=dict)
    """Values for the parameters of pages: by the parameter's name, or by the part of the path before it."""
    notable: dict[str, str] = field(default_factory=dict)
    """Ids of what is worth a look: the notifications delivered, parked, partial (one of two targets has it), refused,
    retrying, held and pending; bulk actions `act done`, `act halted`, `act running`; a parked `call at SITE`."""
    chance: random.Random = field(default_factory=lambda: random.Random(9))

    @property
    def clock(self) -> ManualClock:
        return self.front.clock

    def make_id(self) -> str:
        return new_id(self.clock.now(), self.chance.randbytes(10))

    def go_to(self, moment: datetime) -> None:
        self.clock.advance((moment - self.clock.now()).total_seconds())

    async def say(self, list_name: str, subject: str, body: str, *, site: str = "plant-north", **more: str) -> str:
        return await self.front.centre.send(
            list_name,
            site=site,
            subject=subject,
            body=body,
            notification_id=self.make_id(),
            enqueued_at=to_text(self.clock.now() - timedelta(milliseconds=640)),
            **more,
        )

    async def report(self, *names: str) -> None:
        """These sites tell how they stand; without names, those that are there now."""
        for role in SITES:
            if role.name in names or (role.is_there and not names):
                await self.front.centre.ingest.health.keep(role.name, health(role, self.clock.now(), VERSION))
                await self.front.operate.sites.saw(role.name)

    async def beat(self) -> None:
        """Both nodes say that they live, one leads, and the dispatcher of this one has swept."""
        centre, now = self.front.centre, self.clock.now()
        for (node_id,) in await centre.rows("select node_id from nodes"):
            await centre.store.write(nodes.beat, str(node_id), now=now)
        await centre.store.write(leases.take, leases.LEADER, self.places["node_id"], lease_s=60.0, now=now)
        centre.metrics.swept(0.004)

    async def sample(self) -> None:
        """Keep the KPIs and the health of the sites as of now, as a node that leads does every minute."""
        store, now = self.front.centre.store, self.clock.now()
        snapshot = await store.read(kpis.snapshot, Thresholds(), now=now)
        taken_at = begin_of(now, timedelta(minutes=1))
        await store.write(samples.add, taken_at, snapshot)
        await store.write(site_health.sample, taken_at, Freshness(), now=now)


@asynccontextmanager
async def open_world(store_url: str, end: datetime = NIGHT) -> AsyncIterator[World]:
    """The world on a fresh store, as it stands at this moment."""
    async with open_front(store_url, ManualClock(end - WEEK - timedelta(hours=1))) as front:
        world = World(front)
        await _furnish(world)
        await front.centre.store.write(keep_past, world.clock.now(), end - SHIFT, VERSION)
        world.go_to(end - SHIFT)
        await _pass_the_night(world, end)
        await _sites_call(world, end)
        await publish_events(world, end)
        await _people_act(world, end)
        await _trouble(world, end)
        yield world


async def _furnish(world: World) -> None:
    """What an administrator set up a week ago."""
    operate = world.front.operate
    mail = {"from_address": "fieldpost@example.org"}
    relays = (
        ("mail", {"host": "127.0.0.1", "port": 587, "tls": "none"}, True),
        ("harbour-relay", {"host": "127.0.0.1", "port": 2525, "tls": "none"}, False),
    )
    for name, settings, is_default in relays:
        await operate.channels.add(ADMIN, name, "email", mail | settings, is_default=is_default, retry_delay_s=300)
    for name, targets in LISTS.items():
        channel = "harbour-relay" if name == "harbour-master" else None
        await operate.lists.add(ADMIN, ListSpec(name=name, targets=targets, channel=channel))
    await operate.lists.add(ADMIN, ListSpec(name="flood", type="lists", targets=("ops", "maintenance", "night-shift")))
    for role in SITES:
        world.front.tokens[role.name] = (await operate.sites.add(ADMIN, role.name)).token
    await operate.sites.revoke(ADMIN, "old-mill")
    for name, person in (("kim", Role.VIEWER), ("lee", Role.OPERATOR), ("sam", Role.OPERATOR)):
        await operate.users.add(ADMIN, name, person)
    sam = await operate.users.get(ADMIN, "sam")
    await operate.users.change(ADMIN, "sam", sam.version, is_disabled=True)
    added = await operate.tokens.add(ADMIN, "wallboard in the control room", Role.VIEWER)
    await operate.tokens.add(ADMIN, "nightly list import", Role.ADMIN, life=None)
    await operate.zgw_clients.add(ADMIN, "open-zaak", ["publiceren"], ["zaken", "besluiten"])
    await operate.zgw_clients.add(ADMIN, "besluitenregister", ["consumeren"])
    world.places["client_id"] = "open-zaak"
    await add_abonnement(world)
    await add_chats(world)
    for index, host in enumerate(("central-a", "central-b")):
        node_id = new_id(world.clock.now() + timedelta(seconds=index), world.chance.randbytes(10))
        await world.front.centre.store.write(nodes.start, node_id, host, VERSION, now=world.clock.now())
        world.places["node_id"] = node_id
    world.places |= {"sites": "plant-north", "lists": "maintenance", "channels": "harbour-relay", "users": "lee"}
    world.places |= {"site": "plant-north", "token_id": added.token_id}


async def _pass_the_night(world: World, end: datetime) -> None:
    """Ordinary business: something every few minutes, most of it delivered at once."""
    adapter, centre = world.front.centre.adapter, world.front.centre
    adapter.always["billing"] = PermanentFailure(LOGIN_REFUSED, phase="auth", reply=LOGIN_REFUSED)
    for step in range(32):
        site, instance, script, list_name, subject, body = SAYINGS[step % len(SAYINGS)]
        for _ in range(1 + step % 3):
            last = await world.say(list_name, subject, body, site=site, instance=instance, script=script)
        if step % 8 == 3:
            adapter.answer("maintenance", _half(UNKNOWN_USER))
            parked = await world.say(
                "maintenance", f"Filter {step}: change is due", "1,500 hours since the last change.", script="care.py"
            )
            world.notable["partial"] = parked
        if step == 20:
            adapter.answer("maintenance", _half(UNKNOWN_USER))
            world.notable["whole"] = await world.say("flood", "Sluice 2: water rises", "4.10 m, limit 3.80 m.")
        await centre.deliver()
        world.notable["delivered"] = last
        world.go_to(end - SHIFT + (step + 1) * timedelta(minutes=5))
        await world.report(*EVERYONE)
        await world.sample()
        if step in (5, 20):
            await _invoices(world, 130)


async def _invoices(world: World, count: int) -> None:
    """Reports that park, all for one reason: a set for the bulk actions."""
    for number in range(count):
        last = await world.say("billing", f"Meter readings {number + 1:03} ready", "See the folder.", site="depot-west")
    await world.front.centre.deliver(slots=256, slots_per_key=256)
    world.notable["refused"] = last


async def _sites_call(world: World, end: datetime) -> None:
    """What sites tell of their cached calls, and how they stand."""
    world.go_to(end - timedelta(minutes=19))
    mirrors, now = world.front.centre.ingest.mirrors, world.clock.now()
    for role in SITES:
        if not role.calls:
            continue
        rows = []
        for number, (category, target, status, error, http_status) in enumerate(role.calls, 1):
            begun = now - timedelta(minutes=11 * number)
            is_over = status in ("delivered", "failed", "discarded")
            rows.append(
                CallRow(
                    call_id=new_id(begun, world.chance.randbytes(10)),
                    category=category,
                    target=target,
                    status=status,
                    version=number,
                    retry_count=0 if is_over else 3,
                    last_error=error,
                    http_status=http_status,
                    instance=role.instance,
                    script=role.script,
                    created_at=to_text(begun),
                    updated_at=to_text(now),
                    terminal_at=to_text(now) if is_over else None,
                )
            )
        told = Telemetry(incarnation=role.name, after=0, until=len(rows), sent_at=to_text(now), rows=tuple(rows))
        await mirrors.telemetry(role.name, told)
        parked = [row.call_id for row in rows if row.status == "parked"]
        if parked and role.name == "plant-north":
            world.places |= {"site": role.name, "call_id": parked[0]}
        if parked:
            world.notable[f"call at {role.name}"] = parked[0]
    world.go_to(end - timedelta(minutes=17))
    await world.report("island")


async def _people_act(world: World, end: datetime) -> None:
    """Bulk actions: one that went through, one that was halted, one that is half done; and words to sites."""
    front, operate = world.front, world.front.operate
    adapter, centre = front.centre.adapter, front.centre
    world.go_to(max(end - timedelta(minutes=12), world.clock.now()))
    adapter.answer("night-shift", *[TransientFailure(GREYLISTED, phase="rcpt", reply=GREYLISTED)] * 4)
    world.notable["retrying"] = await world.say(
        "night-shift", "Reefer 118: too warm", "−14 °C, set to −18 °C. Row 6.", site="harbour", script="watch_quay.py"
    )
    await centre.deliver()
    parked = await _parked(world, "maintenance")
    done = await operate.bulk_actions.start(
        OPERATOR, BulkVerb.DISCARD, [Chosen(parked[-1])], "the filter was changed on Friday"
    )
    await operate.bulk_actions.sweep()
    error = await _error_key(world, "refused")
    halted = await operate.bulk_actions.start(
        OPERATOR, BulkVerb.RETRY, Filter(error_key=error), "is the new password in force?", in_stages=True
    )
    await operate.bulk_actions.sweep()
    await centre.deliver()
    world.clock.advance(2)
    await operate.bulk_actions.sweep()
    world.go_to(max(end - timedelta(minutes=8), world.clock.now()))
    intents = front.commands.intents
    for kind, site, arguments in (
        (IntentKind.RETRY, "island", None),
        (IntentKind.LIST_REJECTED, "plant-north", {"limit": 20}),
        (IntentKind.QUERY_EVENTS, "plant-north", {"limit": 20}),
    ):
        about = [world.notable[f"call at {site}"]] if kind is IntentKind.RETRY else []
        given = await operate.intents.create(
            OPERATOR, site, kind, message_ids=about, arguments=arguments, reason="the ERP is back" if about else None
        )
        world.places["intent_id"] = given[0].intent_id
        if kind is IntentKind.LIST_REJECTED:
            await intents.to_send(given)
            answer = CommandResult(intent_id=given[0].intent_id, outcome="applied", rows=(_rejected(world, end),))
            await intents.settle(site, answer)
    await intents.to_send(given)
    await intents.settle(
        "plant-north", CommandResult(intent_id=given[0].intent_id, outcome="applied", rows=_events(world, end))
    )
    world.places |= {"action_id": done.action_id, "link": (await operate.users.reset_password(ADMIN, "kim")).token}
    world.notable |= {"act done": done.action_id, "act halted": halted.action_id}


async def _trouble(world: World, end: datetime) -> None:
    """The present: the harbour's relay is down, a bulk action runs, and something has just come in."""
    adapter, centre = world.front.centre.adapter, world.front.centre
    adapter.always["harbour-master"] = Held(REFUSED, phase="connect")
    for number in range(7):
        world.notable["held"] = await world.say(
            "harbour-master",
            f"Berth {number + 2}: fender pressure high",
            "412 kN, limit 380 kN.",
            site="harbour",
            instance=f"berth-{number + 2}",
            script="watch_quay.py",
        )
    last_heard = end - timedelta(seconds=52)
    while world.clock.now() < last_heard:
        await centre.deliver()
        world.go_to(min(last_heard, world.clock.now() + timedelta(minutes=2)))
        await world.report()
        await world.sample()
    await world.report("quarry")
    adapter.answer("maintenance", PermanentFailure(FULL, phase="data", reply=FULL))
    world.notable["parked"] = await world.say(
        "maintenance",
        "Compressor 4: vibration",
        "7.4 mm/s at the drive end, the limit is 7.1 mm/s.\nThe bearing was changed on 2 November.",
        instance="compressor-4",
        script="watch_air.py",
        execution_id="run-20931",
    )
    await world.say("ops", "Gate 1: open since 22:00", "Nobody has asked for it to stay open.", instance="gate-1")
    await centre.deliver()
    await flood_chats(world)
    world.go_to(end - timedelta(seconds=12))
    running = await world.front.operate.bulk_actions.start(
        OPERATOR, BulkVerb.RETRY, Filter(list_name="billing"), "the password of the relay was renewed"
    )
    for _ in range(2):
        await centre.store.write(bulk_step.step, running.action_id, now=world.clock.now())
    world.notable["act running"] = running.action_id
    world.places |= {"notification_id": world.notable["partial"], "error_key": await _error_key(world, "partial")}
    world.go_to(end - timedelta(seconds=3))
    await world.report()
    await world.beat()
    world.notable["pending"] = await world.say(
        "ops", "Tank 7: level normal", "71 % full.", instance="tank-7", script="watch_tanks.py"
    )
    world.go_to(end)


def _half(error: str) -> PermanentFailure:
    """One target has it, the other never will."""
    outcome = fold((Target("workshop@example.org", REACHED), Target("kim@contractor.example", FAILED, error)))
    assert isinstance(outcome, PermanentFailure)
    return PermanentFailure(outcome.error, outcome.targets, reply=error, phase="rcpt")


def _events(world: World, end: datetime) -> tuple[dict[str, str | int | None], ...]:
    told = (
        ("error", "parked", "HTTP 409: order 20931 exists already; 3 attempts"),
        ("info", "forwarding_resumed", "after 2 min"),
        ("warning", "forwarding_failed", "central does not answer"),
    )
    return tuple(
        {
            "sequence": 4711 - number,
            "occurred_at": to_text(end - timedelta(minutes=22 + 9 * number)),
            "severity": severity,
            "kind": kind,
            "text": text,
        }
        for number, (severity, kind, text) in enumerate(told)
    )


def _rejected(world: World, end: datetime) -> dict[str, str | int | None]:
    """A row of a site's rejected box, as it tells it."""
    at = end - timedelta(minutes=51)
    return {
        "notification_id": new_id(at, world.chance.randbytes(10)),
        "code": "submit.content",
        "error": "the id was used before, for other content",
        "created_at": to_text(at),
        "rejected_at": to_text(at + timedelta(seconds=4)),
        "list_name": "ops",
        "subject": "Boiler 1: flame out",
        "script": "watch_heat.py",
    }


async def _parked(world: World, list_name: str) -> Sequence[str]:
    found = await world.front.watch.notifications.page(Filter(statuses=(Status.PARKED,), list_name=list_name))
    return [line.notification.notification_id for line in found.lines]


async def _error_key(world: World, name: str) -> str:
    error = (await world.front.centre.get(world.notable[name])).last_error
    assert error is not None
    return fingerprint_key(error)


async def live_on(world: World) -> None:
    """Let the world's time pass as ours does, with its dispatcher, bulk actions and sites at work, until cancelled."""
    centre, clock = world.front.centre, world.clock
    dispatcher = centre.dispatcher()

    async def pass_time() -> None:
        while True:
            await asyncio.sleep(1)
            clock.advance(1)

    async def report() -> None:
        while True:
            await clock.sleep(15)
            await world.report()
            await world.beat()
            await world.sample()

    async def talk() -> None:
        number = 0
        while True:
            await clock.sleep(15)
            site, instance, script, list_name, subject, body = SAYINGS[number % len(SAYINGS)]
            await world.say(list_name, subject, body, site=site, instance=instance, script=script)
            number += 1

    async with asyncio.TaskGroup() as group:
        for loop in (pass_time(), report(), talk(), dispatcher.run(), world.front.operate.bulk_actions.run()):
            group.create_task(loop)

"""The demo's scenario: sites and their notifications, lists with their mailboxes and chats, events and receivers."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from fieldpost.demo.chats import ChatKind

CHANNEL = "demo-mail"
RETRY_DELAY_S = 3
FROM_ADDRESS = "fieldpost@demo.example"

HEALTHY = "ops"
FLAKY = "night-shift"
GONE = "former-contractor"

MAILBOXES = {
    HEALTHY: "ops@demo.example",
    FLAKY: "lee@demo.example",
    GONE: "kim@demo.example",
}
"""The only target of each list."""

REFUSALS = 2
"""How often the flaky mailbox defers each mail before it accepts it."""


@dataclass(frozen=True, slots=True)
class ChatList:
    """A list with its channel and its only target."""

    name: str
    channel: str
    target: str


CHAT_LISTS = {
    ChatKind.TEAMS: ChatList("control-room", "demo-teams", "control-room"),
    ChatKind.SLACK: ChatList("duty-room", "demo-slack", "duty"),
    ChatKind.TELEGRAM: ChatList("duty-chat", "demo-telegram", "@demo_duty"),
    ChatKind.SMS: ChatList("duty-phone", "demo-sms", "+31600000042"),
}
ALARM = "alarm"
ALARM_MEMBERS = (HEALTHY, *(one.name for one in CHAT_LISTS.values()))
"""A list of lists: mailbox, chats and phone."""
BOT_TOKEN = "1000000001:demo-bot-on-this-machine-only"
ROUTER_LOGIN = ("demo", "demo")
SLACK_FAILURES = 2
"""How often Slack answers 503 in each run of the demo."""
TELEGRAM_PAUSE_S = 30
"""How long Telegram asks to wait at the first message of each run."""


APPLICATION = "planner"
"""The application that publishes events, by the name of its token."""
TOPIC = "work-orders"
OWNER = "maintenance"
STEADY = "wall-display"
RECOVERING = "spare-parts"
RECEIVERS = (STEADY, RECOVERING)
"""Subscriptions of OWNER to TOPIC, each with its receiver."""
FAILING_S = 60.0
"""How long the recovering receiver fails from its first request on, in each run of the demo."""
WEBHOOK_RETRY_S = 5
QUICK_TRIES = 2
BREAK_S = 15.0
FAILURES_MAX = 3
WORK_ORDERS = (
    ("created", "work-orders/4711", {"plant": "north"}, {"title": "Change filter 2", "hours": 1500}),
    ("created", "work-orders/4712", {"plant": "harbour"}, {"title": "Inspect bollard 9"}),
    ("changed", "work-orders/4711", {"plant": "north"}, {"title": "Change filter 2", "assigned_to": "Kim"}),
    ("closed", "work-orders/4711", {"plant": "north"}, {"title": "Change filter 2"}),
    ("closed", "work-orders/4712", {"plant": "harbour"}, {"title": "Inspect bollard 9"}),
)
"""Action, resource, attributes and payload of the events that an application publishes."""


@dataclass(frozen=True, slots=True)
class Words:
    """A notification that a script sends."""

    list_name: str
    instance: str
    subject: str
    body: str
    severity: str | None = None


@dataclass(frozen=True, slots=True)
class SiteRole:
    name: str
    script: str
    lines: tuple[Words, ...]

    def spoken(self) -> Iterator[Words]:
        """All lines in order, repeated forever."""
        return itertools.cycle(self.lines)


SITES = (
    SiteRole(
        "plant-north",
        "watch_pumps.py",
        (
            Words(HEALTHY, "pump-3", "Pump 3: pressure low", "2.1 bar at the outlet, the limit is 2.5 bar."),
            Words(FLAKY, "boiler-1", "Boiler 1: feed water cold", "61 °C at the inlet, the limit is 75 °C."),
            Words(
                ALARM, "sluice-2", "Sluice 2: gate does not close", "Position 14 %, set to 0 %.", severity="critical"
            ),
            Words(GONE, "filter-2", "Filter 2: change is due", "1,500 hours since the last change."),
            Words(HEALTHY, "pump-3", "Pump 3: pressure normal", "2.8 bar at the outlet for five minutes."),
            Words(HEALTHY, "tank-7", "Tank 7: level high", "93 % full, rising 2 % an hour."),
            Words(
                FLAKY, "compressor-4", "Compressor 4: vibration", "7.4 mm/s at the drive end, the limit is 7.1 mm/s."
            ),
            Words(HEALTHY, "gate-1", "Gate 1: open since 22:00", "Nobody has asked for it to stay open."),
            Words(HEALTHY, "tank-7", "Tank 7: level normal", "71 % full."),
        ),
    ),
    SiteRole(
        "harbour",
        "watch_quay.py",
        (
            Words(HEALTHY, "crane-2", "Crane 2: wind alarm", "Gusts of 19 m/s at the jib; hoisting has stopped."),
            Words(HEALTHY, "tide-gauge", "Tide gauge: silent", "No reading for ten minutes."),
            Words(ALARM, "basin-1", "Basin 1: oil on the water", "Camera 3, near berth 6.", severity="error"),
            Words(FLAKY, "reefer-118", "Reefer 118: too warm", "−14 °C, set to −18 °C. The container is on row 6."),
            Words(HEALTHY, "crane-2", "Crane 2: wind alarm over", "Below 12 m/s for ten minutes."),
            Words(
                HEALTHY, "quay-lights", "Quay lights: phase lost", "L2 is out at cabinet 4; half the lamps are dark."
            ),
            Words(GONE, "bollard-9", "Bollard 9: inspection is due", "The last one was twelve months ago."),
            Words(HEALTHY, "tide-gauge", "Tide gauge: back", "3.42 m above datum."),
        ),
    ),
)

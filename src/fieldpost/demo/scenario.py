"""The demo's scenario: sites, lists with their mailboxes, and the notifications of the sites' scripts."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

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
class Words:
    """A notification that a script sends."""

    list_name: str
    instance: str
    subject: str
    body: str


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

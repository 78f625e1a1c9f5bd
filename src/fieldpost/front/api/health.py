"""Probes for whoever watches the process: alive, and ready to take something in."""

import msgspec

from fieldpost.front.api.call import Answer, Call


class Probe(msgspec.Struct, frozen=True):
    status: str


async def alive(_call: Call) -> Answer:
    """The process answers; it says nothing of the store, since a restart would not mend that."""
    return Answer(Probe("alive"))


async def ready(call: Call) -> Answer:
    """The store can be used; Unavailable (503) while it cannot."""
    await call.watch.health.check_store()
    return Answer(Probe("ready"))


class HealthView(msgspec.Struct, frozen=True):
    """`well`, or `troubled` and by what."""

    status: str
    troubles: list[str]


async def show(call: Call) -> Answer:
    """What is wrong with central although it works, such as secrets that cannot be read."""
    call.query()
    troubles = await call.watch.health.troubles()
    return Answer(HealthView("troubled" if troubles else "well", troubles))

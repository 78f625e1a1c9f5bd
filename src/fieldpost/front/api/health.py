"""Probes for whoever watches the process: alive, and ready to take something in."""

import msgspec

from fieldpost.front.http.call import Answer, Call, Text
from fieldpost.front.http.endpoint_spec import promises
from fieldpost.front.http.problems import RETRY_AFTER_S


class Probe(msgspec.Struct, frozen=True):
    status: str


@promises(Probe)
async def alive(_call: Call) -> Answer:
    """The process answers; it says nothing of the store, since a restart would not mend that."""
    return Answer(Probe("alive"))


class CheckView(msgspec.Struct, frozen=True):
    name: str
    status: str
    detail: str


class ReadinessView(msgspec.Struct, frozen=True):
    """`ready` or `not_ready`, with the reasons."""

    status: str
    checks: list[CheckView]


@promises(ReadinessView, may={503: ReadinessView})
async def ready(call: Call) -> Answer:
    """Whether this node can do its work: the store, its schema, the dispatcher; 503 while it cannot, and why."""
    found = await call.watch.health.readiness()
    checks = [CheckView(check.name, check.verdict.value, check.detail) for check in found.checks]
    if found.is_ready:
        return Answer(ReadinessView("ready", checks))
    return Answer(ReadinessView("not_ready", checks), 503, {"Retry-After": str(RETRY_AFTER_S)})


@promises("text/plain")
async def metrics(call: Call) -> Answer:
    """The metrics of this node and of the centre, as Prometheus reads them."""
    call.query()
    return Answer(Text(await call.watch.exposition.text(), call.watch.exposition.content_type))


class HealthView(msgspec.Struct, frozen=True):
    """`well`, or `troubled` and by what."""

    status: str
    troubles: list[str]


@promises(HealthView)
async def show(call: Call) -> Answer:
    """What is wrong with central although it works, such as secrets that cannot be read."""
    call.query()
    troubles = await call.watch.health.troubles()
    return Answer(HealthView("troubled" if troubles else "well", troubles))

"""Probes for whoever watches the process: alive, and ready to take something in."""

import msgspec

from fieldpost.front.http.call import ApiAnswer, Call, FileAnswer
from fieldpost.front.http.endpoint_spec import spec
from fieldpost.front.http.problems import RETRY_AFTER_S


class Probe(msgspec.Struct, frozen=True):
    status: str


@spec(Probe)
async def alive(_call: Call) -> ApiAnswer:
    """The process answers; it says nothing of the store, since a restart would not mend that."""
    return ApiAnswer(Probe("alive"))


class CheckView(msgspec.Struct, frozen=True):
    name: str
    status: str
    detail: str


class ReadinessView(msgspec.Struct, frozen=True):
    """`ready` or `not_ready`, with the reasons."""

    status: str
    checks: list[CheckView]


@spec(ReadinessView, may={503: ReadinessView})
async def ready(call: Call) -> ApiAnswer:
    """Whether this node can do its work: the store, its schema, the dispatcher; 503 while it cannot, and why."""
    found = await call.watch.health.readiness()
    checks = [CheckView(check.name, check.verdict.value, check.detail) for check in found.checks]
    if found.is_ready:
        return ApiAnswer(ReadinessView("ready", checks))
    return ApiAnswer(ReadinessView("not_ready", checks), 503, {"Retry-After": str(RETRY_AFTER_S)})


@spec("text/plain")
async def metrics(call: Call) -> ApiAnswer:
    """The metrics of this node and of the centre, as Prometheus reads them."""
    call.query()
    return ApiAnswer(FileAnswer(await call.watch.exposition.text(), call.watch.exposition.content_type))


class HealthView(msgspec.Struct, frozen=True):
    """`well`, or `troubled` and by what."""

    status: str
    troubles: list[str]


@spec(HealthView)
async def show(call: Call) -> ApiAnswer:
    """What is wrong with central although it works, such as secrets that cannot be read."""
    call.query()
    troubles = await call.watch.health.troubles()
    return ApiAnswer(HealthView("troubled" if troubles else "well", troubles))

"""Probes, metrics and the health of the installation."""

import msgspec

from fieldpost.central.watch.issues import IssueCode, IssueSeverity, verdict
from fieldpost.front.http.call import ApiAnswer, Call, FileAnswer
from fieldpost.front.http.endpoint_spec import spec
from fieldpost.front.http.problems import RETRY_AFTER_S


class Probe(msgspec.Struct, frozen=True):
    status: str


@spec(Probe)
async def alive(_call: Call) -> ApiAnswer:
    """The process answers. The store is not checked, since a restart would not repair it."""
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
    """Whether this node can work, with the reasons: store, schema, dispatcher. 503 while it cannot."""
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


class IssueView(msgspec.Struct, frozen=True):
    """One finding about health; `link` is the console page on which to act."""

    code: IssueCode
    severity: IssueSeverity
    text: str
    link: str
    affected: int


class HealthView(msgspec.Struct, frozen=True):
    """`well` without issues, else the worst severity; the issues, the worst first."""

    status: str
    issues: list[IssueView]


@spec(HealthView)
async def show(call: Call) -> ApiAnswer:
    """The issues of the whole installation, as the console's Health page shows them."""
    call.query()
    issues = (await call.watch.overview.now()).issues
    views = [IssueView(one.code, one.severity, one.text, one.link, one.affected) for one in issues]
    return ApiAnswer(HealthView(verdict(issues), views))

"""Probes of this node, metrics, and the issues of the whole installation."""

from dataclasses import dataclass

from fieldpost.central.watch.issues import Issue, verdict
from fieldpost.core.checks import Check, Diagnosis
from fieldpost.front.http.call import ApiAnswer, Call, FileAnswer
from fieldpost.link.http.endpoint_spec import spec
from fieldpost.link.http.problem import RETRY_AFTER_S
from fieldpost.link.http.view import View, ViewField


@dataclass(frozen=True, slots=True)
class Liveness:
    """The answer of the liveness probe."""

    status: str


@dataclass(frozen=True, slots=True)
class InstallationHealth:
    """The verdict on the installation and its issues."""

    status: str
    issues: tuple[Issue, ...]


def _readiness(found: Diagnosis) -> str:
    return "ready" if found.is_ready else "not_ready"


PROBE = View("Probe", Liveness, "status")
CHECK = View("CheckView", Check, "name status=verdict detail")
READINESS = View(
    "ReadinessView",
    Diagnosis,
    ViewField("status", _readiness),
    ViewField("checks", view=CHECK),
    description="`ready` or `not_ready`, with the checks.",
)
ISSUE = View(
    "IssueView",
    Issue,
    "code severity text link affected",
    description="One finding about health; `link` is the console page on which to act.",
)
HEALTH = View(
    "HealthView",
    InstallationHealth,
    "status",
    ViewField("issues", view=ISSUE),
    description="`well` without issues, else the worst severity; the issues, the worst first.",
)


@spec(PROBE)
async def alive(_call: Call) -> Liveness:
    """Liveness probe: the process answers. It does not check the store, because a restart would not repair that."""
    return Liveness("alive")


@spec(READINESS, other_answers={503: READINESS})
async def ready(call: Call) -> ApiAnswer:
    """Readiness probe: store, schema and dispatcher work. 503 with the failed checks otherwise."""
    found = await call.watch.health.readiness()
    return ApiAnswer(found) if found.is_ready else ApiAnswer(found, 503, {"Retry-After": str(RETRY_AFTER_S)})


@spec("text/plain")
async def metrics(call: Call) -> ApiAnswer:
    """Metrics of this node and of central in Prometheus format."""
    return ApiAnswer(FileAnswer(await call.watch.exposition.text(), call.watch.exposition.content_type))


@spec(HEALTH)
async def show(call: Call) -> InstallationHealth:
    """Show the issues of the whole installation, like the Health page of the console."""
    issues = tuple((await call.watch.overview.now()).issues)
    return InstallationHealth(verdict(issues), issues)

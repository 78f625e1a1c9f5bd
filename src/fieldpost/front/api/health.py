"""Probes of this node, metrics, and the issues of the whole installation."""

from dataclasses import dataclass, replace

from fieldpost.central.watch.issue import Issue
from fieldpost.central.watch.issues import verdict
from fieldpost.core.checks import Check, CheckVerdict, Diagnosis
from fieldpost.core.errors import FieldpostError
from fieldpost.front import auth
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


UNSAID = {
    CheckVerdict.OK: "ok",
    CheckVerdict.WARNING: "needs attention; the console and the log have the details",
    CheckVerdict.FAILING: "failing; the console and the log have the details",
}
"""The details for callers who are not known: they name no driver, node or message."""

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
    """Readiness probe: store, schema and dispatcher work. 503 with the failed checks otherwise. The details of the
    checks need an API token."""
    found = await call.watch.health.readiness()
    if not await _is_known(call):
        found = Diagnosis(tuple(replace(check, detail=UNSAID[check.verdict]) for check in found.checks))
    return ApiAnswer(found) if found.is_ready else ApiAnswer(found, 503, {"Retry-After": str(RETRY_AFTER_S)})


async def _is_known(call: Call) -> bool:
    """Whether the request has a valid API token; nobody is known while the store is down."""
    if "authorization" not in call.request.headers:
        return False
    try:
        await auth.program(call.request.headers, call.operate.accounts)
    except FieldpostError:
        return False
    return True


@spec("text/plain")
async def metrics(call: Call) -> ApiAnswer:
    """Metrics of this node and of central in Prometheus format."""
    return ApiAnswer(FileAnswer(await call.watch.exposition.text(), call.watch.exposition.content_type))


@spec(HEALTH)
async def show(call: Call) -> InstallationHealth:
    """Show the issues of the whole installation, like the Health page of the console."""
    issues = tuple((await call.watch.overview.now()).issues)
    return InstallationHealth(verdict(issues), issues)

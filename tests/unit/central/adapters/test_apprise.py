"""Apprise: which URLs are accepted, and what an observed exchange means."""

import importlib
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fieldpost.central.adapters.answers import ReadAnswer, Verdict
from fieldpost.central.adapters.apprise.adapter import AppriseAdapter
from fieldpost.central.adapters.apprise.classify import classify
from fieldpost.central.adapters.apprise.schemas import HTTP_SCHEMAS
from fieldpost.core.errors import InvalidInput
from fieldpost.core.secret import Secret
from fieldpost.outbound.client import NoAnswer
from fieldpost.outbound.guard import Blocked
from fieldpost.outbound.progress import HttpPhase

pytestmark = pytest.mark.needs("apprise")
NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)


def test_the_accepted_schemas_are_those_of_the_installed_version_that_use_requests_alone() -> None:
    found: dict[str, str] = {}
    for plugin in importlib.import_module("apprise.plugins").N_MGR.plugins():
        names = set(vars(sys.modules[plugin.__module__]))
        if "requests" in names and not names & {"socket", "smtplib", "subprocess"}:
            for given in (plugin.protocol, plugin.secure_protocol):
                for schema in [given] if isinstance(given, str) else given or ():
                    found[schema] = plugin.__module__.removeprefix("apprise.plugins.")
    assert found == HTTP_SCHEMAS


@pytest.mark.parametrize(
    "url",
    [
        "",
        "no-url-at-all-canary",
        "gopher://canary",
        "syslog://canary",
        "dbus://canary",
        "mailto://canary:canary@example.org",
        "file:///etc/canary",
        "jsons://host/canary,jsons://host/two",
        "jsons://host/canary jsons://host/two",
        "jsons://host/canary\r\nX: y",
        "jsons://host/canary\0",
        "JSONS://host/canary",
        "jsons://host/" + "canary" * 500,
    ],
)
@pytest.mark.req("CHN-13")
def test_other_urls_are_refused_without_repeating_them(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        AppriseAdapter().check_target_secret(Secret(url))
    assert caught.value.field == "secret"
    assert "canary" not in caught.value.message


def test_one_url_over_http_is_accepted_as_it_is() -> None:
    secret = Secret("gotifys://gotify.example.org/AbCdEf?priority=high&to=a,b")
    assert AppriseAdapter().check_target_secret(secret) == secret


def seen(
    *statuses: int, is_ok: bool = False, kind: str | None = None, retry_after: str | None = None
) -> dict[str, Any]:
    failure = None if kind is None else {"kind": kind, "reason": "10.0.0.7 may not be reached: it is private"}
    answers = [{"status": status, "retry_after": retry_after, "text": "said"} for status in statuses]
    return {"is_ok": is_ok, "answers": answers, "failure": failure}


@pytest.mark.req("CHN-13", "CHN-02")
@pytest.mark.parametrize(
    ("observed", "verdict"),
    [
        (seen(200, is_ok=True), Verdict.DELIVERED),
        (seen(401, 200, is_ok=True), Verdict.DELIVERED),
        (seen(302, is_ok=True), Verdict.FAILED),
        (seen(is_ok=True), Verdict.TRANSIENT),
        (seen(200), Verdict.TRANSIENT),
        (seen(), Verdict.TRANSIENT),
        (seen(kind="plugin"), Verdict.TRANSIENT),
        (seen(401), Verdict.FAILED),
        (seen(403), Verdict.FAILED),
        (seen(404, 200), Verdict.FAILED),
        (seen(408), Verdict.TRANSIENT),
        (seen(500), Verdict.TRANSIENT),
        (seen(503, kind="answer"), Verdict.TRANSIENT),
        (seen(429, retry_after="7"), Verdict.PAUSED),
        ({"fault": "Apprise does not accept this URL"}, Verdict.FAILED),
    ],
)
def test_the_observed_response_decides_and_never_pass_or_fail_alone(observed: dict[str, Any], verdict: Verdict) -> None:
    read = classify(observed, NOW)
    assert isinstance(read, ReadAnswer)
    assert read.verdict is verdict
    if verdict is Verdict.PAUSED:
        assert read.wait == timedelta(seconds=7)


@pytest.mark.req("CHN-13")
def test_without_a_response_the_phase_decides() -> None:
    unsent, unanswered, denied = (classify(seen(kind=kind), NOW) for kind in ("connect", "answer", "guard"))
    assert isinstance(unsent, NoAnswer)
    assert (unsent.phase, unsent.is_sent) == (HttpPhase.CONNECT, False)
    assert isinstance(unanswered, NoAnswer)
    assert (unanswered.phase, unanswered.is_sent) == (HttpPhase.ANSWER, True)
    assert isinstance(denied, Blocked)
    assert (denied.host, denied.reason) == ("10.0.0.7", "it is private")

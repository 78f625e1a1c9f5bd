"""The adapters whose targets are labels with a secret pass the suite that every adapter must pass."""

from contextlib import AbstractAsyncContextManager

import pytest

from fieldpost.central.adapters.pagerduty.adapter import PagerDutyAdapter
from fieldpost.central.adapters.slack.adapter import SlackAdapter
from fieldpost.central.adapters.teams.adapter import TeamsAdapter
from fieldpost.core.delivery.adapter import Adapter
from fieldpost.testing import AdapterContract, Behaviour, World
from fieldpost.testing.http.rules import HttpReaction
from fieldpost.testing.providers import FakePagerDuty, FakeSlack, FakeTeams
from support.provider_worlds import ProviderWorld, provider_outbound

LABELS = ("canary-night-shift", "canary-day-shift")
MANY = tuple(f"canary-{number}" for number in range(10))
BAD_LABELS = ("", " ", "a\nb", "https://hooks.slack.com/services/T0/B0/X", "x" * 129)
KEYS = {label: f"{number:032x}" for number, label in enumerate((*LABELS, *MANY), start=0xCA9A12)}


@pytest.mark.req("CHN-04", "CHN-02", "CHN-05", "CHN-06", "CHN-07", "OPN-07")
@pytest.mark.dec("DEC-62")
class TestTeamsContract(AdapterContract):
    good_targets = ("night-shift", "Halle 3")
    limits_requests = True
    bad_targets = BAD_LABELS
    bad_settings = (("url", "https://teams.example"),)

    def make(self, deadline_s: float) -> Adapter:
        return _ClosingTeams(outbound=provider_outbound(), deadline_s=deadline_s)

    def world(self, behaviour: Behaviour) -> AbstractAsyncContextManager[World]:
        return ProviderWorld(
            server=lambda tls: FakeTeams(is_limited=False, tls=tls),
            settings=lambda url: {},
            targets=LABELS,
            many=MANY,
            refuses=HttpReaction(status=404, body=b'{"error":{"code":"WorkflowNotFound"}}'),
            too_many=HttpReaction(status=429),
            secret_of=lambda url, label: FakeTeams().hook(label, url),
        ).behaving(behaviour)


@pytest.mark.req("CHN-04", "CHN-02", "CHN-05", "CHN-06", "CHN-07")
@pytest.mark.dec("DEC-62")
class TestSlackContract(AdapterContract):
    good_targets = ("night-shift", "Halle 3")
    limits_requests = True
    bad_targets = BAD_LABELS
    bad_settings = (("style", "markdown"), ("style", 5))

    def make(self, deadline_s: float) -> Adapter:
        return _ClosingSlack(outbound=provider_outbound(), deadline_s=deadline_s)

    def world(self, behaviour: Behaviour) -> AbstractAsyncContextManager[World]:
        return ProviderWorld(
            server=lambda tls: FakeSlack(is_limited=False, tls=tls),
            settings=lambda url: {"style": "blocks"},
            targets=LABELS,
            many=MANY,
            refuses=HttpReaction(status=403, body=b"action_prohibited"),
            too_many=HttpReaction(status=429, headers={"Retry-After": "30"}),
            secret_of=lambda url, label: FakeSlack().hook(label, url),
        ).behaving(behaviour)


@pytest.mark.req("CHN-04", "CHN-02", "CHN-05", "CHN-06", "CHN-07", "DEC-88")
class TestPagerDutyContract(AdapterContract):
    good_targets = ("duty-desk", "Halle 3")
    limits_requests = True
    bad_targets = BAD_LABELS
    bad_settings = (("url", "ftp://x"), ("url", "http://elsewhere.example"))

    def make(self, deadline_s: float) -> Adapter:
        return _ClosingPagerDuty(outbound=provider_outbound(), deadline_s=deadline_s)

    def world(self, behaviour: Behaviour) -> AbstractAsyncContextManager[World]:
        return ProviderWorld(
            server=lambda tls: FakePagerDuty(KEYS, is_limited=False, tls=tls),
            settings=lambda url: {"url": url},
            targets=LABELS,
            many=MANY,
            refuses=HttpReaction(status=400, body=b'{"message":"Event object is invalid","errors":["x"]}'),
            too_many=HttpReaction(status=429),
            secret_of=lambda url, label: KEYS[label],
        ).behaving(behaviour)


class _Closing:
    """Closes the client that the test made for it."""

    async def close(self) -> None:
        await self._outbound.close()  # type: ignore[attr-defined]


class _ClosingTeams(_Closing, TeamsAdapter): ...


class _ClosingSlack(_Closing, SlackAdapter): ...


class _ClosingPagerDuty(_Closing, PagerDutyAdapter): ...

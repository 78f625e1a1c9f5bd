"""Targets with a secret: hook URLs and routing keys go to the strict client, and appear nowhere."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from fieldpost.central.adapters.hooks import HookAdapter
from fieldpost.central.adapters.pagerduty.adapter import PagerDutyAdapter
from fieldpost.central.adapters.slack.adapter import SlackAdapter
from fieldpost.central.adapters.teams.adapter import TeamsAdapter
from fieldpost.core.delivery.outcome import Delivered, Evidence, Held, Outcome, PermanentFailure, TransientFailure
from fieldpost.core.errors import InvalidInput
from fieldpost.core.notification import TargetStatus
from fieldpost.core.secret import Secret
from fieldpost.outbound.outbound import Outbound
from fieldpost.testing import World
from fieldpost.testing.providers import FakePagerDuty, FakeSlack, FakeTeams
from fieldpost.testing.world import envelope
from support.provider_worlds import provider_outbound, server_context


@pytest.fixture
async def outbound() -> AsyncIterator[Outbound]:
    clients = provider_outbound()
    yield clients
    await clients.close()


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    async with FakeSlack(tls=server_context()) as server:
        yield server


def to_hooks(server: FakeSlack | FakeTeams, *labels: str) -> World:
    return World({}, labels, list, target_secrets={label: Secret(server.hook(label)) for label in labels})


def statuses(outcome: Outcome) -> dict[str, TargetStatus]:
    return {target.address: target.status for target in outcome.targets}


@pytest.mark.req("CHN-02")
async def test_a_hook_beyond_its_limit_pauses_alone(slack: FakeSlack, outbound: Outbound) -> None:
    adapter = SlackAdapter(outbound=outbound)
    assert isinstance(await adapter.deliver(envelope(to_hooks(slack, "a"))), Delivered)
    outcome = await adapter.deliver(envelope(to_hooks(slack, "a", "b")))
    assert isinstance(outcome, Held)
    assert statuses(outcome) == {"a": TargetStatus.DUE, "b": TargetStatus.DELIVERED}
    assert [(pause.address, pause.wait) for pause in outcome.pauses] == [("a", timedelta(seconds=1))]


@pytest.mark.dec("DEC-62")
async def test_unreachable_hook_holds_and_the_others_are_reached(slack: FakeSlack, outbound: Outbound) -> None:
    adapter = SlackAdapter(outbound=outbound)
    async with FakeSlack(tls=server_context()) as away:
        gone = away.hook("gone")
    world = World({}, ("a", "gone"), list, target_secrets={"a": Secret(slack.hook("a")), "gone": Secret(gone)})
    outcome = await adapter.deliver(envelope(world))
    assert isinstance(outcome, TransientFailure)
    assert statuses(outcome) == {"a": TargetStatus.DELIVERED, "gone": TargetStatus.DUE}
    assert outcome.evidence is Evidence.WORKS
    alone = await adapter.deliver(envelope(world, targets=("gone",)))
    assert isinstance(alone, Held)
    assert alone.evidence is Evidence.FAILS


@pytest.mark.req("CHN-04")
async def test_a_hook_that_an_answer_repeats_is_not_in_the_outcome(slack: FakeSlack, outbound: Outbound) -> None:
    adapter = SlackAdapter(outbound=outbound)
    path = slack.hook("canary-7c1").removeprefix(slack.url)
    slack.errors["canary-7c1"] = (404, f"no_service at {path}, or {slack.hook('canary-7c1')}")
    lines: list[str] = []
    world = World({}, ("night-shift",), list, target_secrets={"night-shift": Secret(slack.hook("canary-7c1"))})
    with capture_logs() as logs:
        outcome = await adapter.deliver(envelope(world, transcript=lines.append))
    assert isinstance(outcome, PermanentFailure)
    assert outcome.error == f"night-shift: 404 no_service at ***, or {slack.url}***"
    assert not any("canary" in text or "T00000000" in text for text in (repr(outcome), *lines, *map(repr, logs)))
    assert lines[0] == f"> POST {slack.url}***"


@pytest.mark.req("CHN-04")
@pytest.mark.parametrize("before", range(140, 200, 4))
async def test_the_key_of_a_hook_is_hidden_alone_and_where_an_answer_is_truncated(
    slack: FakeSlack, outbound: Outbound, before: int
) -> None:
    key = "canary-7c1-0123456789"
    slack.errors[key] = (404, f"no_service {key}".rjust(before + len(key), "."))
    lines: list[str] = []
    world = World({}, ("night-shift",), list, target_secrets={"night-shift": Secret(slack.hook(key))})
    outcome = await SlackAdapter(outbound=outbound).deliver(envelope(world, transcript=lines.append))
    assert isinstance(outcome, PermanentFailure)
    assert not any("can" in text for text in (repr(outcome), *lines)), outcome


@pytest.mark.req("CHN-04")
@pytest.mark.bad_input(31, 34)
@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("http://hooks.example/services/canary", "must begin with https://"),
        ("https://ann:canary@hooks.example/", "must not contain a user name"),
        ("https://hooks.example/canary#x", "must not have a fragment"),
        ("https://10.0.0.5/canary", "10.0.0.5"),
        ("https://127.0.0.1/canary", "127.0.0.1"),
        ("https://169.254.169.254/canary", "169.254.169.254"),
        ("https://[::1]/canary", "::1"),
        ("https://hooks.example/can\nary", "must not contain spaces, control characters"),
        ("https://hooks.example/" + "canary" * 500, "must have 1 to 2048 characters"),
        ("canary", "must begin with https://"),
        ("https://hooks.example:22/canary", "must not name a port under 1024"),
    ],
)
@pytest.mark.parametrize("kind", [SlackAdapter, TeamsAdapter])
def test_a_bad_hook_url_is_rejected_without_repeating_it(kind: type[HookAdapter], url: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        kind().check_target_secret(Secret(url))
    assert rule in refused.value.message
    assert "canary" not in str(refused.value)
    assert refused.value.field == "secret"


def test_the_retired_connectors_of_teams_are_accepted_with_a_warning() -> None:
    url = "https://plant.webhook.office.com/webhookb2/canary@x/IncomingWebhook/y"
    with capture_logs() as lines:
        assert TeamsAdapter().check_target_secret(Secret(url)).reveal() == url
    assert [(line["event"], line["host"]) for line in lines] == [("target.retired_host", "plant.webhook.office.com")]
    assert "canary" not in repr(lines)


def test_any_host_is_allowed_in_a_hook_url() -> None:
    for url in (
        "https://prod-12.westeurope.logic.azure.com:443/workflows/x/triggers/manual/paths/invoke?sig=a%2Bb",
        "https://default1.23.environment.api.powerplatform.com/powerautomate/automations/direct/workflows/x",
        "https://mattermost.example.org:8443/hooks/x",
    ):
        kept = TeamsAdapter().check_target_secret(Secret(url))
        assert TeamsAdapter().check_target_secret(kept) == kept


@pytest.mark.req("CHN-04")
@pytest.mark.parametrize("key", ["", "short", "a" * 31 + "\n", "a" * 33, "ä" * 32, "a" * 16 + "\r\n" + "a" * 14])
def test_a_bad_routing_key_is_rejected_without_repeating_it(key: str) -> None:
    with pytest.raises(InvalidInput, match="32 letters and digits") as refused:
        PagerDutyAdapter().check_target_secret(Secret(key))
    assert refused.value.field == "secret"


@pytest.mark.req("CHN-07", "DEC-88")
async def test_a_cleared_incident_resolves_the_alert_that_it_raised() -> None:
    key = "0123456789abcdef0123456789abcdef"
    async with FakePagerDuty({"desk": key}) as pagerduty:
        adapter = PagerDutyAdapter()
        world = World({"url": pagerduty.url}, ("desk",), list, target_secrets={"desk": Secret(key)})
        for subject in ("Pump 3 is hot", "Pump 3 is hotter"):
            assert isinstance(await adapter.deliver(envelope(world, subject=subject, incident="pump-3")), Delivered)
        assert pagerduty.alerts == {("desk", "pump-3"): "Pump 3 is hot"}
        await adapter.deliver(envelope(world, subject="Pump 3 is cool", incident="pump-3", is_cleared=True))
        assert pagerduty.alerts == {}
        for _ in range(2):
            await adapter.deliver(envelope(world))
        assert len(pagerduty.alerts) == 1
        await adapter.close()


async def test_teams_says_that_the_flow_accepted_the_card(outbound: Outbound) -> None:
    async with FakeTeams(tls=server_context()) as teams:
        outcome = await TeamsAdapter(outbound=outbound).deliver(envelope(to_hooks(teams, "a")))
    assert isinstance(outcome, Delivered)
    assert outcome.reply == "202: accepted by the flow"

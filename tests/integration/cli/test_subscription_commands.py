"""`fieldpost subscriptions`."""

import json
import re

import pytest

from fieldpost.core.delivery.exchange import Exchange, HttpTry
from fieldpost.core.delivery.outcome import TransientFailure
from fieldpost.core.events.event import notification_id_of
from support.centre import ScriptedAdapter
from support.commands import Cli
from support.hooks import Hooks


async def test_subscription_is_managed_by_commands_only(cli: Cli) -> None:
    ran = await cli(
        *("subscriptions", "add", "shop", "--owner", "web team", "--url", "https://93.184.216.34/in"),
        *("--filter", "topic=orders,action=created,country=NL", "--set", "format=cloudevents"),
    )
    assert ran.code == 0, ran.err
    found = re.fullmatch(r"Added subscription (\S+)\.\nSigning secret, shown only once: (whsec_\S+)\n", ran.out)
    assert found
    id_, secret = found.groups()
    ran = await cli("subscriptions", "list", role="viewer")
    assert "topic=orders, action=created, country=NL" in ran.out
    ran = await cli("subscriptions", "show", id_, role="viewer")
    assert "cloudevents" in ran.out
    assert secret not in ran.out
    ran = await cli("subscriptions", "change", id_, "--name", "webshop", "--filter", "topic=orders*")
    assert ran.out == "Changed subscription webshop.\n"
    entry = 'zgw: {"naam": "zaken", "filters": {"zaaktype": "x"}}'
    ran = await cli("subscriptions", "change", id_, "--filter", entry)
    assert ran.out == "Changed subscription webshop.\n", ran.err
    assert entry in (await cli("subscriptions", "list")).out
    ran = await cli("subscriptions", "rotate", id_)
    assert "Signing secret, shown only once: whsec_" in ran.out
    for verb, word in (("pause", "Paused"), ("resume", "Resumed"), ("disable", "Disabled"), ("remove", "Removed")):
        ran = await cli("subscriptions", verb, id_)
        assert (ran.code, ran.out) == (0, f"{word} subscription webshop.\n"), ran.err
    assert "No subscriptions" in (await cli("subscriptions", "list")).out
    ran = await cli("subscriptions", "list", "--state", "removed", "--json")
    assert [one["name"] for one in json.loads(ran.out)["subscriptions"]] == ["webshop"]
    assert "All receivers are healthy" in (await cli("subscriptions", "unhealthy")).out


async def test_bad_options_are_named(cli: Cli) -> None:
    add = ("subscriptions", "add", "shop", "--owner", "web", "--url", "https://93.184.216.34/in")
    ran = await cli(*add, "--filter", "orders")
    assert (ran.code, "--filter must be name=value" in ran.err) == (3, True)
    ran = await cli(*add, "--set", "format=xml")
    assert (ran.code, "format" in ran.err) == (3, True)
    ran = await cli(*add)
    id_ = ran.out.split()[2].rstrip(".")
    ran = await cli("subscriptions", "change", id_)
    assert (ran.code, "nothing to change" in ran.err) == (3, True)


async def test_a_receiver_is_tested_recovered_and_enabled_by_commands(cli: Cli) -> None:
    adapter = ScriptedAdapter("webhook")
    cli.front.operate.subscriptions._adapters = {"webhook": adapter}
    ran = await cli("subscriptions", "add", "shop", "--owner", "web", "--url", "https://93.184.216.34/in")
    id_ = ran.out.split()[2].rstrip(".")
    ran = await cli("subscriptions", "test", id_)
    assert (ran.code, "delivered" in ran.out) == (0, True)
    adapter.answer("shop", TransientFailure("HTTP 503", phase="answer"))
    ran = await cli("subscriptions", "test", id_)
    assert (ran.code, "HTTP 503" in ran.out) == (1, True)
    ran = await cli("subscriptions", "recover", id_, "--from", "2026-01-01T00:00:00Z", "--dry-run")
    assert (ran.code, "to create" in ran.out) == (0, True)
    assert (await cli("subscriptions", "disable", id_)).code == 0
    ran = await cli("subscriptions", "enable", id_)
    assert (ran.code, "give either --from or --new-only" in ran.err) == (3, True)
    ran = await cli("subscriptions", "enable", id_, "--new-only")
    assert (ran.code, ran.out) == (0, "Enabled subscription shop.\n")


async def test_the_command_line_filters_by_subscription_and_event(cli: Cli) -> None:
    hooks = Hooks(cli.front.centre, cli.front.clock)
    billing, _ = [await hooks.subscribe(name) for name in ("billing", "stock")]
    (event_id,) = await hooks.publish()
    ran = await cli("notifications", "list", "--subscription", billing.subscription_id, "--event", event_id, "--json")
    (line,) = json.loads(ran.out)["notifications"]
    assert line["notification_id"] == notification_id_of(event_id, billing.subscription_id)
    ran = await cli("notifications", "list", "--kind", "list")
    assert "No matching notifications" in ran.out


async def test_the_log_shows_reasons_requests_and_responses(cli: Cli) -> None:
    hooks = Hooks(cli.front.centre, cli.front.clock)
    subscription = await hooks.subscribe()
    ran = await cli("subscriptions", "log", subscription.subscription_id)
    assert ran.out == "No deliveries yet.\n"
    exchange = Exchange(
        url="https://billing.example/in",
        tries=(HttpTry(offset_ms=0, duration_ms=12, status=500),),
        request_headers={"webhook-id": "x", "webhook-signature": "***"},
        status=500,
        response_headers={"Server": "nginx"},
        response_body="no\x1b[31m database",
    )
    hooks.adapter.always["billing"] = TransientFailure("the receiver answered 500", exchanges=(exchange,))
    sent = await hooks.one(subscription)
    ran = await cli("subscriptions", "log", subscription.subscription_id)
    assert "Not attempted yet." in ran.out
    await hooks.centre.deliver()
    ran = await cli("subscriptions", "log", subscription.subscription_id, "--status", "retrying", role="viewer")
    for words in (sent, "retrying", "orders.created", "The receiver answered 500"):
        assert words in ran.out
    ran = await cli("subscriptions", "log", subscription.subscription_id, "--json")
    assert json.loads(ran.out)["deliveries"][0]["attempts"][0]["exchanges"][0]["status"] == 500
    ran = await cli("notifications", "log", sent)
    for line in (
        "  POST https://billing.example/in",
        "  try 1, after 0 ms, took 12 ms: 500",
        "  > webhook-signature: ***",
        '  > {"type":"orders.created"',
        "  < Server: nginx",
    ):
        assert line in ran.out
    assert "\x1b" not in ran.out
    ran = await cli("notifications", "log", sent, role="viewer")
    assert "  < 500 (only administrators and the owner can read the response)" in ran.out
    assert "database" not in ran.out
    assert "orders.created" not in ran.out
    ran = await cli("notifications", "log", sent, "--json")
    assert json.loads(ran.out)["attempts"][0]["exchanges"][0]["response_body"] == "no\x1b[31m database"


@pytest.mark.dec("DEC-51")
async def test_a_subscriber_is_added_and_subscribes_for_its_own_owner(cli: Cli) -> None:
    ran = await cli("users", "add", "dora", "--role", "subscriber")
    assert "the role subscriber needs subscription_owner" in ran.err
    ran = await cli("users", "add", "dora", "--role", "subscriber", "--subscription-owner", "billing")
    assert "Added user dora with role subscriber" in ran.out, ran.err
    assert "subscriber of billing" in (await cli("users", "list")).out
    ran = await cli("users", "change", "dora", "--role", "subscriber", "--subscription-owner", "invoices")
    assert "to role subscriber of invoices" in ran.out, ran.err
    assert "role: subscriber of invoices" in " ".join((await cli("users", "show", "dora")).out.split())
    ran = await cli("tokens", "add", "bot", "--role", "subscriber", "--subscription-owner", "billing")
    assert "role subscriber" in ran.out, ran.err
    url = ("--url", "https://93.184.216.34/in")
    ran = await cli("subscriptions", "add", "orders", *url, role="subscriber")
    assert "its notifications are held until the receiver answers a signed test with 2xx" in ran.out, ran.err
    (id_,) = [word.strip(".") for word in ran.out.split() if word.startswith("0") and word.endswith(".")]
    assert f"fieldpost subscriptions test {id_}" in ran.out
    assert "unverified" in (await cli("subscriptions", "show", id_, role="subscriber")).out
    refused = await cli("subscriptions", "add", "x", "--owner", "other", *url, role="subscriber")
    assert "only the subscriptions of its own owner, 'acme'" in refused.err
    assert "this needs the role" in (await cli("lists", "list", role="subscriber")).err

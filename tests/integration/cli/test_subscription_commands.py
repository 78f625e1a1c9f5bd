"""`fieldpost subscriptions`."""

import json
import re

from fieldpost.core.delivery.outcome import TransientFailure
from support.centre import ScriptedAdapter
from support.commands import Cli


async def test_a_subscription_lives_by_commands_alone(cli: Cli) -> None:
    ran = await cli(
        *("subscriptions", "add", "shop", "--owner", "web team", "--url", "https://93.184.216.34/in"),
        *("--filter", "topic=orders,action=created,country=NL", "--set", "format=cloudevents"),
    )
    assert ran.code == 0, ran.err
    found = re.fullmatch(r"Added subscription (\S+)\.\nSigning secret, shown this once: (whsec_\S+)\n", ran.out)
    assert found
    id_, secret = found.groups()
    ran = await cli("subscriptions", "list", role="viewer")
    assert "topic=orders,action=created,country=NL" in ran.out
    ran = await cli("subscriptions", "show", id_, role="viewer")
    assert "cloudevents" in ran.out
    assert secret not in ran.out
    ran = await cli("subscriptions", "change", id_, "--name", "webshop", "--filter", "topic=orders*")
    assert ran.out == "Changed subscription webshop.\n"
    ran = await cli("subscriptions", "rotate", id_)
    assert "Signing secret, shown this once: whsec_" in ran.out
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

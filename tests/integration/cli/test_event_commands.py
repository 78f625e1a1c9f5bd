"""`fieldpost events` and `fieldpost tokens rotate`, against a running central."""

import json

from fieldpost.central.store.events import subscriptions, topics
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.events.topic import Topic
from support.commands import Cli

ID = "0198c8a0-0000-7000-8000-00000000000{n}"


async def test_an_event_is_published_found_and_shown_with_what_resulted(cli: Cli) -> None:
    store, now = cli.front.centre.store, cli.front.clock.now()
    await store.write(topics.add, Topic(name="orders.created"), now)
    made = Subscription(subscription_id=ID.format(n=9), name="billing", owner="team", filter=(FilterEntry(),))
    await store.write(subscriptions.add, made, now)
    given = ("--resource", "order/17", "--attribute", "region=North", "--id", ID.format(n=1))
    assert (await cli("events", "publish", "orders.created", '{"order": 17}', *given)).out.strip() == ID.format(n=1)
    listed = (await cli("events", "list", "--topic", "orders.created")).out
    assert "order/17" in listed
    shown = (await cli("events", "show", ID.format(n=1))).out
    for part in ("region=North", "1 pending", "billing", '"order": 17'):
        assert part in shown
    assert "No matching events." in (await cli("events", "list", "--resource", "order/18")).out


async def test_an_unknown_topic_and_a_payload_that_is_not_json_are_refused(cli: Cli) -> None:
    for args, expected in (
        (("nobody.knows", "{}"), "topic 'nobody.knows' is not registered"),
        (("orders.created", "no json"), "PAYLOAD must be a JSON object"),
        (("orders.created", "{}", "--attribute", "x"), "--attribute must be NAME=VALUE"),
    ):
        refused = await cli("events", "publish", *args)
        assert refused.code != 0
        assert expected in refused.err


async def test_a_token_is_rotated_and_both_work_during_the_overlap(cli: Cli) -> None:
    first = json.loads((await cli("tokens", "add", "shop", "--role", "publisher", "--json")).out)
    second = json.loads((await cli("tokens", "rotate", "shop", "--overlap", "1h", "--json")).out)
    assert (second["name"], second["role"]) == ("shop", "publisher")
    assert second["token_id"] != first["token_id"]
    listed = (await cli("tokens", "list")).out
    assert first["token_id"] in listed
    await cli("tokens", "rotate", "shop", "--overlap", "0")
    listed = (await cli("tokens", "list")).out
    assert first["token_id"] not in listed
    refused = await cli("tokens", "rotate", "shop", "--overlap", "soon")
    assert "--overlap is a number with m, h, d or w" in refused.err


async def test_topics_are_saved_shown_and_archived(cli: Cli) -> None:
    (cli.folder / "schema.json").write_text('{"required": ["order"]}')
    (cli.folder / "example.json").write_text('{"order": 17}')
    given = ("--description", "Orders", "--attribute", "region", "--owner", "billing")
    assert "No topics yet" in (await cli("topics", "list")).out
    added = await cli("topics", "save", "orders", *given, "--schema", "schema.json", "--example", "example.json")
    assert added.out == "Added topic orders.\n", added.err
    assert (await cli("topics", "save", "orders", "--description", "All orders")).out == "Changed topic orders.\n"
    shown = (await cli("topics", "show", "orders")).out
    for part in ("All orders", "region", "billing", '"order": 17', '"required"'):
        assert part in shown
    (cli.folder / "example.json").write_text("{}")
    refused = await cli("topics", "save", "orders", "--example", "example.json")
    assert (refused.code, "'order' is required" in refused.err) == (3, True)
    await cli("topics", "archive", "orders")
    assert "archived" in (await cli("topics", "list")).out
    await cli("topics", "save", "orders", "--reopen")
    assert "open" in (await cli("topics", "list")).out

"""`fieldpost events` and `fieldpost tokens rotate`, against a running central."""

import json
import re

from fieldpost.central.store.events import subscriptions, topics
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.events.topic import Topic
from support.commands import Cli

ID = "0198c8a0-0000-7000-8000-00000000000{n}"


async def test_event_is_published_found_and_shown_with_its_results(cli: Cli) -> None:
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


async def test_unknown_topic_and_payload_that_is_not_json_are_rejected(cli: Cli) -> None:
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
    await cli("topics", "save", "zaken", "--kanaal")
    listed = json.loads((await cli("topics", "list", "--json")).out)["topics"]
    assert [(one["name"], one["is_kanaal"]) for one in listed] == [("orders", False), ("zaken", True)]
    assert re.search(r"zaken +open +yes", (await cli("topics", "list")).out)


async def test_routes_and_templates_are_added_tried_changed_and_removed(cli: Cli) -> None:
    await cli.front.centre.add_channel()
    await cli.front.centre.add_list("ops", "ann@example.org")
    await cli("topics", "save", "DOWN", "--attribute", "service")
    assert "No routes." in (await cli("routes", "list")).out
    added = (await cli("routes", "add", "down", "--filter", "topic=DOWN, service=api", "--list", "ops")).out
    assert "No template yet for DOWN" in added
    route_id = added.split()[2].rstrip(".")
    await cli("events", "publish", "DOWN", '{"service": "api"}')
    assert "would wait" in (await cli("routes", "match", "DOWN", '{"service": "api"}')).out
    assert "No route matches" in (await cli("routes", "match", "DOWN", "--attribute", "service=db")).out
    assert "Events that wait for a template" in (await cli("templates", "list")).out
    text = ("--subject", "{{ payload.service }} is down", "--body", "Please look.")
    saved = (await cli("templates", "save", "DOWN", *text)).out
    assert "1 event waited for it" in saved
    assert "version 1" in (await cli("routes", "match", "DOWN", '{"service": "api"}')).out
    (cli.folder / "example.json").write_text('{"service": "api"}')
    assert (await cli("topics", "save", "DOWN", "--example", "example.json")).code == 0
    assert "is down" in (await cli("templates", "show", "DOWN")).out
    await cli("templates", "save", "DOWN", "--subject", "{{ payload.service }}")
    alarm = ("--severity", "error", "--incident", "of {{ payload.service }}", "--is-cleared", "true")
    shown = (await cli("templates", "preview", "DOWN", *alarm)).out
    assert "Severity: error\nIncident: of api\nThe incident is over." in shown
    assert "Please look." in (await cli("templates", "show", "DOWN", "--version", "2")).out
    assert "needs --subject" in (await cli("templates", "save", "DOWN", "--type", "email")).err
    await cli("routes", "change", route_id, "--cooldown-s", "600", "--cooldown-by", "service")
    assert "600" in (await cli("routes", "show", route_id)).out
    await cli("routes", "remove", route_id)
    await cli("templates", "remove", "DOWN")
    assert "No templates." in (await cli("templates", "list")).out

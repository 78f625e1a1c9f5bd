"""Writes based on a version that somebody has changed since: they change nothing and report it.

The actions of operators compare versions before they write. Between the two another node may commit, which no test of
an action shows; so these call the store.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection

from fieldpost.central.store.accounts import zgw_clients
from fieldpost.central.store.events import subscriptions, templates
from fieldpost.central.store.notifications import lists
from fieldpost.core.events.filter import FilterEntry
from fieldpost.core.events.subscription import Subscription
from fieldpost.core.events.template import Template
from fieldpost.core.ids import new_id
from fieldpost.core.lists import Channel
from fieldpost.core.zgw.client import ZgwClient, ZgwScope
from fieldpost.testing import ManualClock
from support.centre import Centre

NOW = ManualClock().now()
ID = new_id(NOW, bytes(10))
SECRETS = {"secret": "sealed"}
SUBSCRIPTION = Subscription(
    subscription_id=ID, name="billing", owner="finance", filter=(FilterEntry(),), settings={"url": "https://a.example"}
)
CLIENT = ZgwClient(
    client_id="open-zaak", scopes=(ZgwScope.PUBLISH,), secrets=SECRETS, created_at=NOW, created_by="admin"
)
TEMPLATE = Template(topic="orders", subject="one", body="one", created_at=NOW, created_by="admin")
SECOND = replace(TEMPLATE, subject="two", version=2)
CHANNEL = Channel("mail", "email", {"host": "127.0.0.1"}, secrets=SECRETS)

Work = Callable[[Connection], Any]
CASES: dict[str, tuple[list[Work], Work, Work]] = {
    "a subscription": (
        [
            lambda conn: subscriptions.add(conn, SUBSCRIPTION, NOW),
            lambda conn: subscriptions.change(conn, replace(SUBSCRIPTION, name="renamed"), NOW),
        ],
        lambda conn: subscriptions.change(conn, SUBSCRIPTION, NOW),
        lambda conn: subscriptions.get(conn, ID),
    ),
    "the key of a subscription": (
        [
            lambda conn: subscriptions.add(conn, SUBSCRIPTION, NOW),
            lambda conn: subscriptions.change(conn, replace(SUBSCRIPTION, secrets={"secret": "new"}), NOW),
        ],
        lambda conn: subscriptions.reseal(conn, replace(SUBSCRIPTION, secrets=SECRETS)),
        lambda conn: subscriptions.get(conn, ID),
    ),
    "a ZGW client": (
        [
            lambda conn: zgw_clients.add(conn, CLIENT),
            lambda conn: zgw_clients.change(conn, replace(CLIENT, kanalen=("zaken",))),
        ],
        lambda conn: zgw_clients.change(conn, CLIENT),
        lambda conn: zgw_clients.get(conn, "open-zaak"),
    ),
    "the key of a ZGW client": (
        [
            lambda conn: zgw_clients.add(conn, CLIENT),
            lambda conn: zgw_clients.change(conn, replace(CLIENT, secrets={"secret": "new"})),
        ],
        lambda conn: zgw_clients.reseal(conn, CLIENT),
        lambda conn: zgw_clients.get(conn, "open-zaak"),
    ),
    "a template": (
        [
            lambda conn: templates.add_version(conn, TEMPLATE, None),
            lambda conn: templates.add_version(conn, SECOND, 1),
        ],
        lambda conn: templates.add_version(conn, replace(TEMPLATE, version=3), 1),
        lambda conn: templates.versions(conn, "orders", TEMPLATE.type, 9),
    ),
    "the end of a template": (
        [
            lambda conn: templates.add_version(conn, TEMPLATE, None),
            lambda conn: templates.add_version(conn, SECOND, 1),
        ],
        lambda conn: templates.remove(conn, "orders", TEMPLATE.type, 1),
        lambda conn: templates.get(conn, "orders", TEMPLATE.type),
    ),
    "a channel": (
        [
            lambda conn: lists.add_channel(conn, CHANNEL, NOW),
            lambda conn: lists.change_channel(conn, replace(CHANNEL, max_retries=7), NOW),
        ],
        lambda conn: lists.change_channel(conn, CHANNEL, NOW),
        lambda conn: lists.channels_after(conn, "", 9),
    ),
    "the key of a channel": (
        [
            lambda conn: lists.add_channel(conn, CHANNEL, NOW),
            lambda conn: lists.change_channel(conn, replace(CHANNEL, secrets={"secret": "new"}), NOW),
        ],
        lambda conn: lists.reseal_channel(conn, CHANNEL),
        lambda conn: lists.channels_after(conn, "", 9),
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_write_from_a_stale_version_changes_nothing(centre: Centre, case: str) -> None:
    made, stale, read = CASES[case]
    for work in made:
        assert await centre.store.write(work) in (None, True)
    before = await centre.store.read(read)
    assert before
    assert await centre.store.write(stale) is False
    assert await centre.store.read(read) == before

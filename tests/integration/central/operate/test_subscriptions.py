"""Subscriptions: what is accepted and refused, versions, states, secrets and their rotation, audit."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from fieldpost.central.adapters.webhook.adapter import WebhookAdapter
from fieldpost.central.adapters.webhook.options import WebhookOptions
from fieldpost.central.operate.secrets import Secrets
from fieldpost.central.operate.subscriptions import SubscriptionActions
from fieldpost.central.secrets.keyring import Keyring, SecretKey, owner_of
from fieldpost.central.store.notifications import breakers
from fieldpost.core.actor import Actor, Role
from fieldpost.core.delivery.breaker import Breaker, BreakerState
from fieldpost.core.errors import Conflict, Denied, FieldpostError, InvalidInput, NotFound
from fieldpost.core.events.event import Event
from fieldpost.core.events.filter import FilterEntry, check_filter, filter_matches
from fieldpost.core.events.signature import make_signing_secret
from fieldpost.core.events.subscription import Subscription, SubscriptionState, subscription_key
from fieldpost.outbound.outbound import Outbound
from support.centre import Centre
from support.front import ADMIN

EVERYTHING = (FilterEntry(),)
URL = "https://hook.example/in"
GIVEN = make_signing_secret(bytes(range(24)))
ADDRESSES = {"hook.example": ["203.0.114.7"], "other.example": ["203.0.114.8"], "login.example": ["203.0.114.9"]}


async def resolve(host: str, port: int) -> Sequence[str]:
    if host in ADDRESSES:
        return ADDRESSES[host]
    if host.endswith(".example"):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return [info[4][0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]  # type: ignore[misc]


@pytest.fixture
async def actions(centre: Centre) -> AsyncIterator[SubscriptionActions]:
    outbound = Outbound(resolve=resolve)
    adapters = {"webhook": WebhookAdapter(outbound=outbound)}
    yield SubscriptionActions(centre.store, adapters, centre.clock, centre.keyring, WebhookOptions())
    await outbound.close()


async def add(actions: SubscriptionActions, name: str = "billing", owner: str = "shop", **more: Any) -> Subscription:
    settings = {"url": URL} | more.pop("settings", {})
    return (await actions.add(ADMIN, name, owner, more.pop("filter", EVERYTHING), settings, **more)).subscription


@pytest.mark.req("WHK-02")
@pytest.mark.dec("DEC-44")
async def test_a_subscription_keeps_all_its_fields(actions: SubscriptionActions) -> None:
    entries = (
        FilterEntry(topic="orders.*", action="create", resource="order/*", attributes={"region": "North"}),
        FilterEntry(topic="stock"),
    )
    settings = {
        "format": "cloudevents",
        "auth": "oauth2",
        "token_url": "https://login.example/token",
        "client_id": "fieldpost",
        "scope": "hooks",
        "headers": {"X-Team": "shop"},
        "quick_tries": 2,
        "quick_tries_base_s": 1.5,
        "quick_tries_pattern": "linear",
        "retry_codes": "423, 404",
        "give_up_codes": [422, 400],
        "rate": "20/1m",
    }
    secrets = {"auth_secret": "client secret", "secret": GIVEN.reveal()}
    made = await actions.add(
        ADMIN, "billing", "shop", entries, {"url": URL, **settings}, secrets, retry="schedule:1m,2m"
    )
    assert made.secret is None, "a given secret is not shown again"
    found = await actions.get(made.subscription.subscription_id)
    assert found == made.subscription
    assert found.filter == entries
    assert found.settings == {
        **settings,
        "url": URL,
        "retry_codes": "404 423",
        "give_up_codes": "400 422",
    }
    assert found.state is SubscriptionState.ACTIVE
    assert actions.shown_secrets(found) == {"auth_secret": "set", "secret": "set"}
    assert "client secret" not in str(found.secrets)


async def test_a_signing_secret_is_generated_and_shown_once(actions: SubscriptionActions, centre: Centre) -> None:
    made = await actions.add(ADMIN, "billing", "shop", EVERYTHING, {"url": URL})
    assert made.secret is not None
    sealed = (await actions.get(made.subscription.subscription_id)).secrets["secret"]
    assert centre.keyring.open(sealed, owner_of(made.subscription), "secret") == made.secret


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"url": "file:///etc/passwd"}, "url", "url must begin with https://"),
    ({"url": "gopher://hook.example/"}, "url", "url must begin with https://"),
    ({"url": "javascript:alert(1)"}, "url", "url must"),
    ({"url": "https:///in"}, "url", "url must name a host"),
    ({"url": "https://user@hook.example/"}, "url", "url must not contain a user name"),
    ({"url": "https://hook.example/#a"}, "url", "url must not have a fragment"),
    ({"url": "https://hook.example:99999/"}, "url", "url must be a valid URL"),
    ({"url": "https://hook.example/\tin"}, "url", "url must not contain spaces"),
    ({"url": "https://hook.exa\nmple/"}, "url", "url must not contain spaces"),
    ({"url": "http://hook.example/in"}, "url", "url must begin with https://"),
    ({"url": None}, "url", "url is required"),
    ({"token_url": "http://login.example/"}, "token_url", "token_url must begin with https://"),
    ({"headers": {"X-A": "a\r\nX-B: b"}}, "headers.X-A", "headers.X-A must be up to 4096 printable ASCII"),
    ({"headers": {"Host": "a"}}, "headers.Host", "headers.Host is set by Fieldpost or by HTTP itself"),
    ({"headers": {"content-length": "0"}}, "headers.content-length", "is set by Fieldpost or by HTTP itself"),
    ({"headers": {"Authorization": "x"}}, "headers.Authorization", "use auth for credentials"),
    ({"headers": {"Webhook-Id": "x"}}, "headers.Webhook-Id", "is set by Fieldpost or by HTTP itself"),
    ({"headers": {"X A": "x"}}, "headers", "headers must contain names of HTTP headers"),
    ({"headers": {"X-A": "1", "x-a": "2"}}, "headers.x-a", "headers.x-a is given twice"),
    ({"format": "xml"}, "format", "format must be one of standard, cloudevents, raw"),
    ({"auth": "basic"}, "username", "username is required with auth basic"),
    ({"auth": "header", "auth_header": "X-Key"}, "auth_secret", "auth_secret is required with auth header"),
    ({"rate": "20 per minute"}, "rate", "rate must be COUNT/PERIOD such as 20/1m"),
    ({"rate": "0/1m"}, "rate", "rate must be"),
    ({"quick_tries": True}, "quick_tries", "quick_tries must be a whole number from 0 to 10"),
    ({"quick_tries": 11}, "quick_tries", "quick_tries must be a whole number from 0 to 10"),
    ({"retry_codes": "200"}, "retry_codes", "retry_codes must be up to 50 HTTP statuses"),
    ({"retry_codes": "404", "give_up_codes": "404"}, "give_up_codes", "must not contain 404, which retry_codes"),
    ({"secret": GIVEN.reveal()}, "secret", "secret is a secret, not a plain setting"),
    ({"rotated_at": "2026-01-01T00:00:00Z"}, "rotated_at", "rotated_at is set by a rotation"),
    ({"colour": "red"}, "colour", "unknown setting 'colour'"),
]


@pytest.mark.bad_input(31, 34, 35)
@pytest.mark.parametrize(("settings", "field", "message"), BAD, ids=str)
async def test_a_bad_setting_is_refused_and_nothing_is_written(
    actions: SubscriptionActions, settings: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        await add(actions, settings=settings)
    assert refused.value.field == field
    assert message in refused.value.message
    assert await actions.find() == []


@pytest.mark.bad_input(32, 33)
@pytest.mark.threat(15)
@pytest.mark.parametrize(
    "host",
    [
        "127.1",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "[::]",
        "0",
        "localhost.",
        "①②⑦.⓪.⓪.①",
        "100.64.0.1",
        "192.0.0.8",
        "192.88.99.1",
        "224.0.0.1",
        "[::127.0.0.1]",
        "[::ffff:100.64.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fec0::1]",
        "[3fff::1]",
        "[5f00::1]",
        "169.254.169.254",
        "10.0.0.1",
    ],
)
async def test_a_url_to_a_private_address_is_refused(actions: SubscriptionActions, host: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await add(actions, settings={"url": f"https://{host}/in"})
    assert refused.value.field in ("url", "settings.url")
    more = {"auth": "oauth2", "client_id": "a", "token_url": f"https://{host}/token"}
    with pytest.raises(InvalidInput) as refused:
        await add(actions, settings=more, secrets={"auth_secret": "s"})
    assert refused.value.field in ("token_url", "settings.token_url")


@pytest.mark.fault(46)
async def test_a_host_that_does_not_exist_is_refused(actions: SubscriptionActions) -> None:
    with pytest.raises(InvalidInput, match=r"host 'hok\.example' does not exist"):
        await add(actions, settings={"url": "https://hok.example/"})


@pytest.mark.bad_input(36)
@pytest.mark.parametrize(
    "secret", ["whsec_", "whsec_c2hvcnQ=", "whsec_" + "QUFB" * 7 + "QUE=", "not base64", "x" * 5000]
)
async def test_a_bad_secret_is_refused_without_being_repeated(actions: SubscriptionActions, secret: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await add(actions, secrets={"secret": secret})
    assert refused.value.field == "secrets.secret"
    assert secret == "whsec_" or secret not in str(refused.value)


@pytest.mark.bad_input(37)
@pytest.mark.parametrize(
    "entries", [(), (FilterEntry(topic="x" * 100_000),), (FilterEntry(attributes={"a b": "c"}),), EVERYTHING * 101]
)
async def test_a_bad_filter_is_refused(actions: SubscriptionActions, entries: tuple[FilterEntry, ...]) -> None:
    with pytest.raises(InvalidInput, match=r"filter|attributes"):
        await add(actions, filter=entries)


@pytest.mark.bad_input(37)
def test_a_pattern_is_text_with_stars_and_matches_in_linear_time() -> None:
    """A regular expression is not one here, and many stars do not make a match slow."""
    text = "a" * 200
    event = Event(event_id="1", topic=text, source="app:shop", payload="1")
    began = time.monotonic()
    for pattern in ("(a+)+$", "a*" * 100 + "b", "*" * 199 + "b"):
        assert not filter_matches(check_filter([FilterEntry(topic=pattern)]), event)
    assert filter_matches(check_filter([FilterEntry(topic="a*" * 100)]), event)
    assert time.monotonic() - began < 1, "by backtracking it would take years"


async def test_plain_http_needs_the_setting(centre: Centre) -> None:
    options = WebhookOptions(allow_plain=True)
    outbound = Outbound(resolve=resolve)
    adapters = {"webhook": WebhookAdapter(outbound=outbound)}
    actions = SubscriptionActions(centre.store, adapters, centre.clock, centre.keyring, options)
    assert (await add(actions, settings={"url": "http://hook.example/in"})).url == "http://hook.example/in"
    await outbound.close()


async def test_a_change_needs_the_version_that_the_user_saw(actions: SubscriptionActions) -> None:
    made = await add(actions, secrets={"secret": GIVEN.reveal()})
    changed = await actions.change(
        ADMIN, made.subscription_id, 1, name="invoices", settings={"url": "https://other.example/"}
    )
    assert (changed.name, changed.url, changed.version) == ("invoices", "https://other.example/", 2)
    assert changed.secrets == made.secrets
    with pytest.raises(Conflict) as refused:
        await actions.change(ADMIN, made.subscription_id, 1, name="other")
    assert refused.value.code == "subscription.changed"
    assert await actions.get(made.subscription_id) == changed


async def test_none_resets_a_setting_and_clears_a_secret(actions: SubscriptionActions) -> None:
    basic = {"auth": "basic", "username": "ann", "rate": "5/1s"}
    made = await add(actions, settings=basic, secrets={"auth_secret": "a"})
    cleared = {"auth": None, "username": None, "rate": None}
    changed = await actions.change(
        ADMIN, made.subscription_id, 1, settings=cleared, secrets={"auth_secret": None, "secret": ""}
    )
    assert changed.settings["auth"] == "none"
    assert "rate" not in changed.settings
    assert set(changed.secrets) == {"secret"}


async def test_names_are_unique_per_owner_and_free_again_after_removal(actions: SubscriptionActions) -> None:
    first = await add(actions)
    await add(actions, owner="warehouse")
    with pytest.raises(Conflict, match="shop already has a subscription named 'billing'"):
        await add(actions)
    await actions.remove(ADMIN, first.subscription_id, 1)
    again = await add(actions)
    assert [one.subscription_id for one in await actions.find(owner="shop")] == [again.subscription_id]


@pytest.mark.dec("DEC-48")
async def test_states_follow_each_other_as_the_rules_say(actions: SubscriptionActions) -> None:
    made = await add(actions)
    paused = await actions.pause(ADMIN, made.subscription_id, 1, "maintenance")
    assert (paused.state, paused.state_reason, paused.state_by) == (
        SubscriptionState.PAUSED,
        "maintenance",
        ADMIN.name,
    )
    assert paused.state_at is not None
    active = await actions.resume(ADMIN, made.subscription_id, 2)
    assert (active.state, active.state_reason, active.is_draining) == (SubscriptionState.ACTIVE, None, False)
    with pytest.raises(Conflict, match="only a paused subscription can be resumed"):
        await actions.resume(ADMIN, made.subscription_id, 3)
    disabled = await actions.disable(ADMIN, made.subscription_id, 3)
    assert (disabled.state, disabled.is_draining) == (SubscriptionState.DISABLED, True)
    removed = await actions.remove(ADMIN, made.subscription_id, 4)
    assert (removed.state, removed.is_draining) == (SubscriptionState.REMOVED, True)
    with pytest.raises(Conflict, match="is removed"):
        await actions.change(ADMIN, made.subscription_id, 5, name="x")
    assert (await actions.get(made.subscription_id)).name == "billing", "the record stays for history"


@pytest.mark.dec("DEC-49")
async def test_a_rotation_keeps_the_former_secret(actions: SubscriptionActions, centre: Centre) -> None:
    made = await add(actions, secrets={"secret": GIVEN.reveal()})
    rotated = await actions.rotate(ADMIN, made.subscription_id, 1)
    assert rotated.secret is not None
    opened = centre.keyring.open_owner(rotated.subscription).settings
    assert (opened["secret"], opened["former_secret"]) == (rotated.secret, GIVEN)


async def test_every_action_is_audited_without_secrets(actions: SubscriptionActions, centre: Centre) -> None:
    made = await add(actions, secrets={"secret": GIVEN.reveal()})
    await actions.change(ADMIN, made.subscription_id, 1, settings={"rate": "5/1s"})
    await actions.rotate(ADMIN, made.subscription_id, 2)
    await actions.pause(ADMIN, made.subscription_id, 3)
    await actions.remove(ADMIN, made.subscription_id, 4)
    rows = await centre.rows("select request_summary, target, actor from audit order by occurred_at, event_id")
    verbs = ["add", "change", "rotate", "pause", "remove"]
    assert sorted(rows) == sorted((f"subscription.{verb}", "billing", ADMIN.name) for verb in verbs)
    assert GIVEN.reveal() not in str(await centre.rows("select * from audit"))


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
async def test_only_administrators_change_subscriptions(actions: SubscriptionActions, role: Role) -> None:
    made = await add(actions)
    other = Actor("ben", role)
    with pytest.raises(Denied):
        await actions.add(other, "b", "o", EVERYTHING, {"url": URL})
    with pytest.raises(Denied):
        await actions.change(other, made.subscription_id, 1, name="c")
    with pytest.raises(Denied):
        await actions.rotate(other, made.subscription_id, 1)
    with pytest.raises(Denied):
        await actions.remove(other, made.subscription_id, 1)


async def test_another_owners_subscription_cannot_be_told_from_a_missing_one(actions: SubscriptionActions) -> None:
    made = await add(actions)
    texts = []
    for subscription_id in (made.subscription_id, made.subscription_id[:-1] + "0"):
        with pytest.raises(NotFound) as refused:
            await actions.get(subscription_id, owner="warehouse")
        texts.append(refused.value.message.replace(subscription_id, "ID"))
    assert texts[0] == texts[1]
    assert (await actions.get(made.subscription_id, owner="shop")) == made


@pytest.mark.fault(75)
async def test_a_change_makes_the_next_probe_due_at_once(actions: SubscriptionActions, centre: Centre) -> None:

    made = await add(actions)
    key = subscription_key(made.subscription_id)
    later = centre.clock.now().replace(year=2030)
    open_breaker = Breaker(key, BreakerState.OPEN, 10, later, later, "503", open_until=later)
    await centre.store.write(breakers.change, key, lambda _: open_breaker)
    await actions.change(ADMIN, made.subscription_id, 1, settings={"url": "https://other.example/"})
    found = (await centre.store.read(breakers.load, [key]))[key]
    assert found.open_until is not None
    assert found.open_until <= centre.clock.now()


async def test_concurrent_adds_of_one_name_leave_one(actions: SubscriptionActions) -> None:

    results = await asyncio.gather(*(add(actions) for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(result, Subscription) for result in results) == 1
    assert all(isinstance(result, Subscription | FieldpostError) for result in results)
    assert len(await actions.find()) == 1


@pytest.mark.dec("DEC-34")
async def test_a_rotation_of_the_key_seals_the_secrets_of_subscriptions_again(
    actions: SubscriptionActions, centre: Centre
) -> None:
    made = await add(actions, secrets={"secret": GIVEN.reveal()})
    new_key = SecretKey.of(bytes(range(32)))
    both = Keyring([new_key, SecretKey.of(bytes(32))])
    rotated = await Secrets(centre.store, centre.clock, both).rotate(ADMIN)
    assert (rotated.key_id, rotated.count, rotated.problems) == (new_key.key_id, 1, ())
    found = await actions.get(made.subscription_id)
    assert Keyring([new_key]).open(found.secrets["secret"], owner_of(found), "secret") == GIVEN
    state = await Secrets(centre.store, centre.clock, both).state()
    assert dict(state.counts) == {new_key.key_id: 1}

"""The pages of channels: trouble first, settings as fields, secrets that stay hidden, the breaker, and the test."""

import socket
from collections.abc import AsyncIterator

import pytest

from fieldpost.core.delivery.breaker import BreakerState
from fieldpost.core.delivery.outcome import Held
from fieldpost.core.sms.segments import segments_of
from fieldpost.testing import MailServer, ManualClock
from fieldpost.testing.providers import FakeSmsRouter
from support.front import ADMIN, Front, open_front
from support.visitor import Visitor, visiting

CANARY = "a password that nobody sees"
MAIL = {"host": "127.0.0.1", "tls": "none", "from_address": "ops@example.org"}
FORM = {f"settings.{name}": value for name, value in MAIL.items()} | {"settings.port": "2525"}


@pytest.fixture
async def quick(sqlite_url: str, clock: ManualClock) -> AsyncIterator[Front]:
    """On one database, for what no database answers otherwise than another."""
    async with open_front(sqlite_url, clock) as opened:
        yield opened


async def add_mail(front: Front, port: int = 2525, **more: object) -> None:
    await front.operate.channels.add(ADMIN, "mail", "email", MAIL | {"port": port} | more, is_default=True)


async def test_blocked_channel_is_first_with_its_held_rows_and_can_be_reset_by_an_operator(front: Front) -> None:
    for name in ("a-good", "z-bad"):
        await front.centre.add_channel(name, default=name == "a-good")
    await front.centre.add_list("ops", channel_name="z-bad")
    await front.centre.add_list("other")
    front.centre.adapter.always["ops"] = Held("connecting was refused", phase="connect")
    await front.centre.send_many(3)
    for _ in range(6):
        await front.centre.deliver()
        front.clock.advance(11)
    ways = await front.watch.channels.all()
    assert [(s.channel.name, s.is_blocked, s.held, tuple(s.lists)) for s in ways.channels] == [
        ("z-bad", True, 3, ("ops",)),
        ("a-good", False, 0, ("other",)),
    ]
    async with visiting(front, "viewer") as visitor:
        text = await visitor.look("/channels")
        assert text.index("z-bad") < text.index("a-good")
        assert "connecting was refused" in text
        page = await visitor.look("/channels/z-bad")
        assert "3 notifications are held" in page
        assert "requires the role operator; your role is viewer" in page
        assert 'name="settings.' not in visitor.page.text
    async with visiting(front, "operator") as visitor:
        assert "It sends 3 held notifications immediately." in await visitor.look("/channels/z-bad?confirm=reset")
        await visitor.send("/channels/z-bad/reset")
        assert "Breaker closed" in visitor.text
    assert (await front.centre.breaker("z-bad")).state is BreakerState.CLOSED


async def test_a_channel_is_not_tried_yet_until_the_first_delivery(front: Front) -> None:
    await front.centre.add_channel("mail", default=True)
    await front.centre.add_list("ops")
    async with visiting(front, "viewer") as visitor:
        for path in ("/", "/channels", "/channels/mail"):
            text = (await visitor.client.get(path)).text
            assert ("not tried yet" in text, "healthy</span>" in text) == (True, False), path
        await front.centre.send_many(1)
        await front.centre.deliver()
        for path in ("/", "/channels", "/channels/mail"):
            text = (await visitor.client.get(path)).text
            assert ("not tried yet" in text, "healthy</span>" in text) == (False, True), path


async def test_a_channel_is_tried_once_a_test_has_succeeded(front: Front) -> None:
    async def state_after_test() -> tuple[str, str, int]:
        tested = await front.operate.channels.test(ADMIN, "mail", "ann@example.org")
        [state] = (await front.watch.channels.all()).channels
        return tested.outcome.word, state.health, state.breaker.failures

    async with MailServer() as server:
        await add_mail(front, server.port, tls="starttls")
        assert await state_after_test() == ("held", "untried", 0), "the server has no TLS"
        await front.operate.channels.change(ADMIN, "mail", {"tls": "none"}, 1)
        assert await state_after_test() == ("delivered", "healthy", 0)
        assert await state_after_test() == ("delivered", "healthy", 0)


@pytest.mark.parametrize("kind", ["teams", "apprise"])
async def test_type_without_settings_has_no_fields(quick: Front, kind: str) -> None:
    async with visiting(quick, "admin") as visitor:
        text = await visitor.look("/new/channel", type=kind)
        assert "Channels of this type have no settings of their own." in text
        assert 'name="settings' not in visitor.page.text
        await visitor.send("/channels", name="rooms", type=kind, rate="2/1s")
        assert "Channel added" in visitor.text
    found = await quick.operate.channels.get("rooms")
    assert (found.type, found.settings, found.rate and found.rate.text) == (kind, {}, "2/1s")


async def test_a_channel_is_set_up_and_changed_by_fields_and_its_secrets_are_never_shown(quick: Front) -> None:
    login = {"settings.auth": "basic", "settings.username": "ops"}
    async with visiting(quick, "admin") as visitor:
        assert "No channels yet" in await visitor.look("/channels")
        await visitor.look("/new/channel", type="email")
        await visitor.send("/channels", name="mail", is_default="true", **FORM, **login, **{"secrets.password": CANARY})
        assert "Channel added" in visitor.text
        assert CANARY not in visitor.page.text
        assert "set; leave empty to keep" in visitor.page.text
        added = await quick.operate.channels.get("mail")
        assert (added.is_default, added.settings["port"], added.settings["host"]) == (True, 2525, "127.0.0.1")
        sealed = added.secrets["password"]
        for given, used in (("3", 3), ("", 10)):
            form = FORM | login | {"settings.max_connections": given}
            await visitor.send("/channels/mail/change", **form, is_default="true")
            changed = await quick.operate.channels.get("mail")
            assert changed.settings["max_connections"] == used, "an empty field is the default"
        refused = await visitor.send("/channels/mail/change", **FORM | login | {"settings.port": ""}, is_default="true")
        assert refused.status_code == 422
        assert "Password must be given again, because port changed" in visitor.text
        changed = await quick.operate.channels.get("mail")
        assert changed.secrets["password"] == sealed, "an empty secret stays"
        await visitor.send("/channels/mail/change", **FORM, **{"clear.password": "true", "settings.auth": "none"})
        emptied = await quick.operate.channels.get("mail")
        assert (emptied.secrets, emptied.is_default) == ({}, False)


async def test_invalid_setting_is_reported_at_its_field_and_only_secrets_are_typed_again(quick: Front) -> None:
    await add_mail(quick)
    wrong = {
        "settings.port": ("many", "port must be a whole number"),
        "settings.tls": ("ssl", "tls must be one of"),
        "settings.from_address": ("nobody", "from_address"),
        "settings.auth": ("basic", "username is required if auth is basic"),
        "retry": ("often", "retry: "),
    }
    async with visiting(quick, "admin") as visitor:
        await visitor.look("/channels/mail")
        for name, (value, rule) in wrong.items():
            answer = await visitor.send("/channels/mail/change", **FORM | {name: value, "secrets.password": CANARY})
            assert answer.status_code == 422
            assert rule.lower() in visitor.text.lower()
            assert CANARY not in answer.text
            assert value in answer.text
        await visitor.look("/new/channel", type="email")
        answer = await visitor.send("/channels", name="mail", **FORM)
        assert (answer.status_code, "Channel 'mail' already exists" in visitor.text) == (409, True)
        answer = await visitor.send("/channels", name="other", type="pigeon", **FORM)
        assert answer.status_code == 422
    assert (await quick.operate.channels.get("mail")).version == 1


async def test_second_of_two_concurrent_channel_forms_shows_what_it_would_change_now(quick: Front) -> None:
    await add_mail(quick)
    async with visiting(quick, "admin") as visitor:
        await visitor.look("/channels/mail")
        await quick.operate.channels.change(ADMIN, "mail", {"port": 26}, 1)
        answer = await visitor.send("/channels/mail/change", **FORM | {"max_retries": "4"}, is_default="true")
        assert answer.status_code == 409
        assert "port from 26 to 2525" in visitor.text
        assert "max_retries from 10 to 4" in visitor.text
        assert (await quick.operate.channels.get("mail")).settings["port"] == 26
        await visitor.send("/channels/mail/change", **FORM, is_default="true")
    assert (await quick.operate.channels.get("mail")).settings["port"] == 2525


async def test_test_shows_how_far_it_got_and_what_to_do(quick: Front) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    await add_mail(quick, port)
    async with visiting(quick, "admin") as visitor:
        await visitor.look("/channels/mail")
        await visitor.send("/channels/mail/test", to="ann@example.org")
        assert "held" in visitor.text
        assert "Connect : failed Check host, whether the port is reachable from here" in visitor.text
        assert "Recipient : not reached" in visitor.text
        assert "Login" not in phases(visitor), "the channel has none"
        answer = await visitor.send("/channels/mail/test", to="nobody <here>")
        assert (answer.status_code, "nobody &lt;here&gt;" in answer.text) == (422, True)
        async with MailServer() as server:
            await quick.operate.channels.change(ADMIN, "mail", {"port": server.port}, 1)
            await visitor.look("/channels/mail")
            await visitor.send("/channels/mail/test", to="ann@example.org")
            assert "delivered The server accepted the test for ann@example.org" in visitor.text
            assert "not reached" not in phases(visitor)
            assert "> RCPT TO:<ann@example.org>" in visitor.text
            assert len(server.mails) == 1


async def test_an_sms_channel_shows_how_many_segments_its_test_costs(quick: Front) -> None:
    cost, api = "1 segment of GSM-7 per number", "?username={username}&password={password}&number={number}&text={text}"
    async with FakeSmsRouter("u", "p") as router:
        url = f"{router.url}/cgi-bin/sms_send{api}"
        settings = {"dialect": "http", "url": url, "method": "GET", "number_format": "00", "username": "u"}
        await quick.operate.channels.add(ADMIN, "texts", "sms", settings, secrets={"password": "p"})
        async with visiting(quick, "viewer") as visitor:
            assert "Cost of the test" not in await visitor.look("/channels/texts")
        async with visiting(quick, "admin") as visitor:
            assert f"Cost of the test: {cost}" in await visitor.look("/channels/texts")
            await visitor.send("/channels/texts/test", to="+4915112345678")
            assert f"Cost of the test: {cost}" in visitor.text
        async with quick.client("admin") as client:
            tested = await client.post("/api/v1/channels/texts/test", json={"to": "+4915112345678"})
            assert (tested.json()["outcome"], tested.json()["cost"]) == ("delivered", cost)
        assert [segments_of(copy.text) for copy in router.copies] == [1, 1]
    await add_mail(quick)
    async with visiting(quick, "admin") as visitor:
        assert "Cost of the test" not in await visitor.look("/channels/mail")


async def test_channel_used_by_lists_is_not_removed_and_the_reason_is_shown(quick: Front) -> None:
    await add_mail(quick)
    await quick.centre.add_list("ops")
    async with visiting(quick, "admin") as visitor:
        assert "The channel is used by ops" in await visitor.look("/channels/mail?confirm=remove")
        assert ">Remove</button>" not in visitor.page.text
        await quick.operate.lists.remove(ADMIN, "ops")
        await visitor.look("/channels/mail?confirm=remove")
        await visitor.send("/channels/mail/remove")
        assert "Channel removed" in visitor.text
    async with visiting(quick, "operator") as visitor:
        assert (await visitor.client.get("/new/channel")).status_code == 403
        assert (await visitor.client.get("/channels/mail")).status_code == 404


async def test_the_guide_of_the_type_is_folded_in(quick: Front) -> None:
    async with visiting(quick, "admin") as visitor:
        page = await visitor.look("/new/channel", type="email")
    assert "Guide: channels of type email" in page
    assert "Recipients are in BCC" in page
    assert "**" not in page


def phases(visitor: Visitor) -> str:
    return visitor.page.text.split('class="phases"', 1)[1].split("</ol>", 1)[0]


async def test_the_page_says_that_a_server_does_not_answer_pipelined_commands(quick: Front) -> None:
    async with MailServer(drops_pipelined=True) as server:
        await add_mail(quick, server.port, command_timeout_s=2)
        async with visiting(quick, "admin") as visitor:
            assert "one command at a time" not in await visitor.look("/channels/mail")
            await visitor.send("/channels/mail/test", to="me@example.org")
            assert "The server accepted the test" in visitor.text
            assert "so this node sends it one command at a time" in await visitor.look("/channels/mail")
            assert 'name="settings.pipelining"' in visitor.page.text

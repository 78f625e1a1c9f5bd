"""A target that its provider has moved: it is followed at once, and Health names it until the list has another one."""

import pytest

from fieldpost.central.adapters.telegram.adapter import TelegramAdapter
from fieldpost.central.operate.list_spec import ListSpec
from fieldpost.central.operate.operate import Operate
from fieldpost.central.watch.channel_checks import ChannelChecks
from fieldpost.central.watch.watch import Watch
from fieldpost.core.notification import Status
from fieldpost.testing import ManualClock
from fieldpost.testing.providers import FakeTelegram
from support.centre import Centre
from support.front import ADMIN

TOKEN = "123456:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
ISSUE = ("list.targets", "List night: target '-5' has moved to '-1005'; replace it in the list.", "/lists/night")


@pytest.mark.req("ADP-15")
async def test_a_moved_chat_is_an_issue_until_the_list_has_its_new_id(centre: Centre, clock: ManualClock) -> None:
    adapter = centre.adapters["telegram"] = TelegramAdapter()
    operate = Operate.over(centre.store, centre.adapters, centre.clock, centre.keyring)
    checks = ChannelChecks(centre.store, centre.adapters, centre.keyring, "")

    async def issues() -> list[tuple[str, str, str]]:
        watch = Watch.over(centre.store, clock, keyring=centre.keyring, channel_checks=checks)
        found = (await watch.overview.now()).issues
        return [(one.code.value, one.text, one.link) for one in found if one.code.value.startswith("list.")]

    async def deliver() -> None:
        clock.advance(10)
        sent = await centre.send("night")
        await centre.deliver()
        assert (await centre.get(sent)).status is Status.DELIVERED

    async with FakeTelegram(TOKEN, clock=clock) as telegram:
        settings = {"url": telegram.url}
        await operate.channels.add(ADMIN, "bot", "telegram", settings, secrets={"token": TOKEN}, is_default=True)
        for name in ("night", "day"):
            await operate.lists.add(ADMIN, ListSpec(name=name, type="telegram", targets=["-5", "7"]))
        await deliver()
        assert await issues() == []
        telegram.moved["-5"] = -1005
        await deliver()
        assert await issues() == [ISSUE], "the other list has sent nothing to the chat yet"
        await deliver()
        await operate.lists.change(ADMIN, "night", 1, rate="10/1s")
        assert await issues() == [ISSUE]
        await operate.lists.change(ADMIN, "night", 2, targets=["-1005", "7"])
        assert await issues() == []
        await deliver()
        assert await issues() == []
        assert len(telegram.ids("-1005")) == 3
    await adapter.close()

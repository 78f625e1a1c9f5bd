"""Checks of channels: settings that are probably a mistake become issues before a notification parks for them."""

import pytest

from fieldpost.central.adapters.sms.adapter import SmsAdapter
from fieldpost.central.adapters.teams.adapter import TeamsAdapter
from fieldpost.central.operate.list_spec import ListSpec
from fieldpost.central.operate.operate import Operate
from fieldpost.central.watch.channel_checks import ChannelChecks
from fieldpost.central.watch.watch import Watch
from support.centre import Centre
from support.front import ADMIN
from support.provider_worlds import provider_outbound

KANNEL = {"dialect": "kannel", "url": "http://127.0.0.1:13013/cgi-bin/sendsms", "username": "u", "plain_http": "allow"}
RETIRED = "https://plant.webhook.office.com/webhookb2/canary-4711"


@pytest.mark.req("CHN-04", "CHN-08")
@pytest.mark.dec("DEC-89")
async def test_mistakes_in_channels_and_lists_are_issues_without_any_secret(centre: Centre) -> None:
    outbound = provider_outbound()
    adapters = {"teams": TeamsAdapter(outbound=outbound), "sms": SmsAdapter(outbound=outbound)}
    centre.adapters |= adapters
    operate = Operate.over(centre.store, centre.adapters, centre.clock, centre.keyring)
    await operate.channels.add(ADMIN, "chat", "teams", {}, is_default=True)
    await operate.channels.add(ADMIN, "gateway", "sms", dict(KANNEL), secrets={"password": "p"}, is_default=True)
    hooks = {"old": RETIRED, "new": "https://prod-1.westeurope.logic.azure.com/workflows/x"}
    targets = ["old", "new", "none"]
    await operate.lists.add(ADMIN, ListSpec(name="desk", type="teams", targets=targets, secrets=hooks))

    async def issues(public_url: str) -> list[tuple[str, str]]:
        checks = ChannelChecks(centre.store, centre.adapters, centre.keyring, public_url)
        watch = Watch.over(centre.store, centre.clock, keyring=centre.keyring, channel_checks=checks)
        found = (await watch.overview.now()).issues
        return [(one.code.value, one.text) for one in found if one.code.value.startswith(("channel.", "list."))]

    found = await issues("")
    assert [code for code, _ in found] == ["channel.settings", "channel.settings", "list.targets", "list.targets"]
    texts = "\n".join(text for _, text in found)
    assert "Channel gateway: url begins with http://" in texts
    assert "Channel gateway gets no receipts" in texts
    assert "set front.public_url. Until then, each target counts as delivered after 300 s" in texts
    assert "List desk: target 'none' has no Workflows URL, so notifications park." in texts
    assert "target 'old': its URL belongs to the retired connectors (plant.webhook.office.com)" in texts
    assert "canary" not in texts
    for missing, words in (("retry", "is sent to again"), ("park", "fails")):
        version = (await operate.channels.get("gateway")).version
        await operate.channels.change(ADMIN, "gateway", {}, version, receipt_missing=missing)
        assert f"Until then, each target {words} after 300 s" in str(await issues(""))
    assert len(await issues("https://central.example.org")) == 3
    await outbound.close()

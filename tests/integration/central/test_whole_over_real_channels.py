"""A list of lists that reaches mail, phones and a Teams room by the real adapters: each part fares on its own."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import cast

import pytest

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.central.adapters.sms.adapter import SmsAdapter
from fieldpost.central.adapters.teams.adapter import TeamsAdapter
from fieldpost.central.operate.list_spec import ListSpec
from fieldpost.central.operate.notifications import NotificationActions
from fieldpost.central.operate.operate import Operate
from fieldpost.central.watch.watch import Watch
from fieldpost.core.actor import Actor, Role
from fieldpost.core.notification import Notification, Status
from fieldpost.core.wholes import part_id
from fieldpost.testing import MailServer, ManualClock
from fieldpost.testing.providers import FakeSmsRouter, FakeTeams
from support.attempt_counter import AttemptCounter
from support.centre import SITE, Centre, ScriptedAdapter
from support.front import ADMIN
from support.provider_worlds import provider_outbound, server_context

NUMBER = "+4915112345678"
QUERY = "username={username}&password={password}&number={number}&text={text}"


@dataclass
class Alarm:
    """The list of lists `alarm`, and the three services behind it."""

    centre: Centre
    operate: Operate
    mail: MailServer
    router: FakeSmsRouter
    teams: FakeTeams

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.mail.mail_count, len(self.router.copies), len(self.teams.copies)

    async def seen(self, whole: str) -> Notification:
        """What the site that sent it is told."""
        return await Watch.over(self.centre.store, self.centre.clock).notifications.of_site(whole, SITE)

    async def retry(self, whole: str) -> None:
        seen = await self.seen(whole)
        await NotificationActions(self.centre.store, self.centre.clock).retry(
            Actor("ann", Role.OPERATOR), whole, seen.version
        )


@pytest.fixture
async def alarm(centre: Centre) -> AsyncIterator[Alarm]:
    outbound = provider_outbound()
    counter = AttemptCounter()
    centre.adapter = cast(ScriptedAdapter, counter)
    centre.adapters["email"] = mail = counter.of(EmailAdapter())
    centre.adapters["sms"] = counter.of(SmsAdapter(outbound=outbound))
    centre.adapters["teams"] = counter.of(TeamsAdapter(outbound=outbound))
    async with (
        MailServer() as server,
        FakeSmsRouter("admin", "secret") as router,
        FakeTeams(tls=server_context()) as teams,
    ):
        operate = Operate.over(centre.store, centre.adapters, centre.clock, centre.keyring)
        smtp = {"host": server.host, "port": server.port, "tls": "none", "from_address": "alerts@plant.example"}
        gateway = {
            "dialect": "http",
            "url": f"{router.url}/cgi-bin/sms_send?{QUERY}",
            "username": "admin",
            "method": "GET",
            "number_format": "00",
            "answers": "OK=delivered, WRONG_NUMBER=failed",
        }
        await operate.channels.add(ADMIN, "smtp", "email", smtp, is_default=True)
        await operate.channels.add(ADMIN, "gateway", "sms", gateway, {"password": "secret"}, is_default=True)
        await operate.channels.add(ADMIN, "rooms", "teams", {}, is_default=True)
        secrets = {"control": teams.hook("control")}
        for spec in (
            ListSpec(name="mail", type="email", targets=["ops@plant.example"]),
            ListSpec(name="phones", type="sms", targets=[NUMBER]),
            ListSpec(name="room", type="teams", targets=["control"], secrets=secrets),
            ListSpec(name="alarm", type="lists", targets=["mail", "phones", "room"]),
        ):
            await operate.lists.add(ADMIN, spec)
        yield Alarm(centre, operate, server, router, teams)
    await mail.close()
    await outbound.close()


@pytest.mark.req("CHN-11", "CHN-12", "EVT-04", "ADP-04")
async def test_unreachable_mail_server_delays_only_the_mail_part_and_retry_goes_to_it_only(
    alarm: Alarm, clock: ManualClock
) -> None:
    await alarm.mail.stop()
    whole = await alarm.centre.send("alarm")
    await alarm.centre.deliver()
    assert alarm.counts == (0, 1, 1)
    assert alarm.router.copies[0].target == NUMBER
    assert [server.ids() for server in (alarm.router, alarm.teams)] == [
        [part_id(whole, "phones")],
        [part_id(whole, "room")],
    ]
    seen = await alarm.seen(whole)
    assert seen.status is Status.PENDING
    assert str(seen.last_error).startswith("list 'mail': "), seen.last_error
    assert "no connection to" in str(seen.last_error), seen.last_error
    await alarm.mail.start()
    alarm.mail.on("rcpt").reply(550, "5.1.1 no such mailbox").times(1)
    for _ in range(10):
        clock.advance(60)
        await alarm.centre.deliver()
        if (await alarm.seen(whole)).status is Status.PARKED:
            break
    seen = await alarm.seen(whole)
    assert (seen.status, alarm.counts) == (Status.PARKED, (0, 1, 1))
    assert "list 'mail': ops@plant.example: " in str(seen.last_error)
    assert "5.1.1 no such mailbox" in str(seen.last_error)
    await alarm.retry(whole)
    await alarm.centre.deliver()
    assert (await alarm.seen(whole)).status is Status.DELIVERED
    assert alarm.counts == (1, 1, 1), "Retry goes to the mail alone"


@pytest.mark.req("CHN-04", "CHN-12")
async def test_a_hook_changed_after_parking_delivers_on_retry(alarm: Alarm) -> None:
    alarm.teams.errors["control"] = (404, '{"error":{"code":"WorkflowNotFound"}}')
    whole = await alarm.centre.send("alarm")
    await alarm.centre.deliver()
    seen = await alarm.seen(whole)
    assert seen.status is Status.PARKED
    assert str(seen.last_error).startswith("list 'room': control: 404"), seen.last_error
    assert "WorkflowNotFound" in str(seen.last_error)
    stored = await alarm.operate.lists.get("room")
    await alarm.operate.lists.change(ADMIN, "room", stored.version, secrets={"control": alarm.teams.hook("new-room")})
    await alarm.retry(whole)
    await alarm.centre.deliver()
    assert (await alarm.seen(whole)).status is Status.DELIVERED
    assert alarm.counts == (1, 1, 1)
    assert alarm.teams.copies[0].target == "new-room"

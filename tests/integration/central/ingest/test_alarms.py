"""Severity, incident and the end of an alarm, from the submission to the adapter and the search."""

import pytest

from fieldpost.central.store.search import notifications as search
from fieldpost.core.notification import Severity
from fieldpost.core.search.notification_filter import Filter
from fieldpost.link.messages import Item
from support.centre import Centre

ALARM = {"severity": "critical", "incident": "pump 3", "is_cleared": True}


@pytest.mark.req("CHN-01")
async def test_the_alarm_fields_are_stored_searched_and_handed_to_the_adapter(mailing: Centre) -> None:
    alarm, plain = await mailing.send(**ALARM), await mailing.send()
    await mailing.deliver()
    found = {n: await mailing.get(n) for n in (alarm, plain)}
    assert [(n.severity, n.incident, n.is_cleared) for n in found.values()] == [
        (Severity.CRITICAL, "pump 3", True),
        (None, None, False),
    ]
    sent = {e.notification_id: (e.severity, e.incident, e.is_cleared) for e in mailing.adapter.envelopes}
    assert sent[alarm] == (Severity.CRITICAL, "pump 3", True)
    for wanted in (Filter(severities=(Severity.CRITICAL, Severity.ERROR)), Filter(incident="pump 3")):
        found_by = await mailing.store.read(search.find, wanted, limit=10)
        assert [one.notification_id for one in found_by.notifications] == [alarm]


@pytest.mark.req("CHN-01")
async def test_a_list_gives_its_severity_to_notifications_that_have_none(centre: Centre) -> None:
    await centre.add_channel()
    await centre.add_list("duty", severity=Severity.ERROR)
    assert (await centre.get(await centre.send("duty"))).severity is Severity.ERROR
    assert (await centre.get(await centre.send("duty", severity="info"))).severity is Severity.INFO
    again = centre.item("duty")
    for verdict in ("accepted", "duplicate"):
        ack = await centre.submit(again)
        assert ack.results[0].verdict == verdict, "the list's severity is not part of the content"


@pytest.mark.req("CHN-01", "DEC-12")
@pytest.mark.parametrize("name", ALARM)
async def test_the_same_id_with_another_alarm_is_a_conflict(mailing: Centre, name: str) -> None:
    item = mailing.item()
    given = {field: getattr(item, field) for field in ("notification_id", "list_name", "subject", "body")}
    assert (await mailing.submit(item)).results[0].verdict == "accepted"
    ack = await mailing.submit(Item(**given, **{name: ALARM[name]}), item)
    assert [result.verdict for result in ack.results] == ["rejected", "duplicate"]


@pytest.mark.req("CHN-01")
@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"severity": "high"}, "severity.unknown"),
        ({"incident": "x" * 256}, "incident.length"),
        ({"incident": "a\x00b"}, "text.nul"),
        ({"incident": " "}, "text.empty"),
    ],
)
async def test_an_invalid_alarm_is_rejected_by_field_and_rule(
    mailing: Centre, given: dict[str, str], code: str
) -> None:
    ack = await mailing.submit(mailing.item(**given))
    assert (ack.results[0].verdict, ack.results[0].code) == ("rejected", code)
    assert next(iter(given)) in str(ack.results[0].error)
    assert await mailing.rows("select 1 from notifications") == []

"""A site whose token is in wrong hands: it can speak for itself alone, is told of, and can be shut out by itself."""

import asyncio
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from fieldpost.central.store.accounts import identities
from fieldpost.core.notification import Status
from fieldpost.link.codec import encode
from fieldpost.link.credentials import prefix_of
from fieldpost.link.messages import Ack, Submit
from fieldpost.testing import ManualClock
from support.centre import SITE
from support.front import ADMIN
from support.line import DEADLINE_S, WAYS, Line, receive, submit_of


@pytest.fixture
async def other(line: Line) -> str:
    """The token of a second site, plant-8."""
    return (await line.front.operate.sites.add(ADMIN, "plant-8")).token


async def revoke(line: Line, token: str) -> None:
    prefix = prefix_of(token, "site")
    assert prefix is not None
    assert await line.front.centre.store.write(identities.revoke_token, "site", prefix, line.front.clock.now())


async def verdicts(line: Line, content: bytes, token: str | None = None) -> list[tuple[str, str | None]]:
    ack = await line.tell("post", content, token)
    assert isinstance(ack, Ack)
    return [(result.verdict, result.code) for result in ack.results]


@pytest.mark.threat(3)
@pytest.mark.req("ING-06", "DEC-01")
async def test_a_replayed_conversation_adds_nothing_and_delivers_nothing(line: Line, clock: ManualClock) -> None:
    centre = line.front.centre
    await centre.add_channel()
    await centre.add_list()
    recorded = [submit_of(*(centre.item() for _ in range(3)), seq=seq) for seq in range(3)]
    for content in recorded:
        assert await verdicts(line, content) == [("accepted", None)] * 3
    await centre.deliver()
    before = await line.rows()
    for way in WAYS:
        clock.advance(3600)
        for content in recorded:
            ack = await line.tell(way, content)
            assert isinstance(ack, Ack)
            assert [result.verdict for result in ack.results] == ["duplicate"] * 3
        await centre.deliver()
    assert await line.rows() == before
    assert len(centre.adapter.envelopes) == 9


@pytest.mark.threat(3)
@pytest.mark.req("DEC-12")
async def test_an_id_claimed_in_advance_is_a_conflict_that_names_both_sites_in_the_audit(
    line: Line, other: str, clock: ManualClock
) -> None:
    genuine = line.front.centre.item(subject="Pump 3 stopped")
    forged = line.front.centre.item(notification_id=genuine.notification_id, subject="All is well")
    assert await verdicts(line, submit_of(forged), other) == [("accepted", None)]
    clock.advance(1)
    # The genuine one is told at once, and kept in its site's box: it does not pass for delivered.
    assert await verdicts(line, submit_of(genuine)) == [("rejected", "notification.conflict")]
    assert await line.status(genuine.notification_id) == 404
    row = await line.front.centre.get(genuine.notification_id)
    assert (row.subject, row.provenance.site) == ("All is well", "plant-8")
    entries = await line.front.centre.audit(genuine.notification_id)
    assert [(entry.source_site_id, entry.status) for entry in entries] == [("plant-8", "submitted"), (SITE, "failed")]
    assert "conflict" in str(entries[1].error_message)


@pytest.mark.threat(3)
async def test_conflicts_are_logged_with_their_ids_and_site(line: Line) -> None:
    first = line.front.centre.item()
    await verdicts(line, submit_of(first))
    with capture_logs() as lines:
        await verdicts(line, submit_of(line.front.centre.item(notification_id=first.notification_id, body="other")))
    [told] = [one for one in lines if one["event"] == "submit.conflict"]
    assert (told["ids"], told["site"], told["log_level"]) == ([first.notification_id], SITE, "warning")


@pytest.mark.threat(3)
@pytest.mark.req("DEC-33")
async def test_revoked_token_is_rejected_everywhere_and_other_sites_are_unaffected(line: Line, other: str) -> None:
    mine = line.front.centre.item()
    await verdicts(line, submit_of(mine))
    async with line.websocket() as open_one, line.websocket(other) as theirs:
        await revoke(line, line.token)
        content = submit_of(line.front.centre.item())
        assert (await line.post(content)).status == 401
        assert await line.status(mine.notification_id) == 401
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with line.websocket():
                pytest.fail("it was let in")
        assert refused.value.status == 401
        await open_one.send_bytes(content)
        assert await close_code(open_one) == 1008
        assert (await line.rows())[0] == 1, "nothing of it was taken in"
        await theirs.send_bytes(encode(Submit(1, (line.front.centre.item(),))))
        assert isinstance(await receive(theirs), Ack)
    assert (await line.front.centre.get(mine.notification_id)).status is Status.PENDING, "what it sent before stays"
    line.token = other  # the fixture looks once more whether central is alive


@pytest.mark.threat(1)
async def test_site_of_a_connection_cannot_be_changed_by_messages_or_headers(line: Line, other: str) -> None:
    """Neither a name in the message, nor another's token in a header that is not Authorization, makes anybody else."""
    sent = line.front.centre.item()
    more = {"X-Site": "plant-8", "X-Authorization": f"Bearer {other}", "Cookie": f"token={other}"}
    reply = await line.post(submit_of(sent, site="plant-8", source_site_id="plant-8"), **more)
    assert reply.status == 200
    assert (await line.front.centre.get(sent.notification_id)).provenance.site == SITE
    assert await line.status(sent.notification_id, other) == 404


async def close_code(websocket: Any) -> int | None:
    async with asyncio.timeout(DEADLINE_S):
        await websocket.receive()
    code = websocket.close_code
    return None if code is None else int(code)

"""A week without central with three failovers in it, as central sees it when both nodes return."""

import aiohttp
import pytest

from fieldpost.central.store.sites import cached_calls, intents, mirrors, switches
from fieldpost.core.ids import new_id
from fieldpost.core.pair.numbering import first_number
from fieldpost.core.sites.intent import IntentKind
from fieldpost.core.times import to_text
from fieldpost.link.codec import decode_as, encode
from fieldpost.link.messages import (
    Ack,
    CallRow,
    Command,
    CommandResult,
    EpochAnswer,
    Item,
    Submit,
    Telemetry,
    TelemetryAck,
)
from fieldpost.testing import ManualClock
from support.centre import SITE
from support.front import OPERATOR, Front, served
from support.pair_links import LinkNode, link_node, pair_tokens

pytestmark = [pytest.mark.req("DEC-38", "DEC-39", "DEC-41")]

ALMOST_A_WEEK_S = 7 * 24 * 3600.0 - 60
"""An intent waits for its site for a week."""
CALL = "019b7892-1c00-7000-8000-00000000000a"
REJECTED = "019b7892-1c00-7000-8000-00000000000b"


async def tell(node: LinkNode, front: Front, after: int, until: int, status: str) -> None:
    """Report the call's state, with the last change as its version."""
    now = to_text(front.clock.now())
    row = CallRow(call_id=CALL, category="external_call", target="erp", status=status, version=until, created_at=now)
    await node.send(Telemetry(incarnation="a" * 32, after=after, until=until, sent_at=now, rows=(row,)))
    assert (await node.receive(TelemetryAck)).until == until


async def submit(url: str, token: str, items: list[Item]) -> list[str]:
    """Forward notifications with the token of a node; the verdicts."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    async with (
        aiohttp.ClientSession(url, headers=headers) as http,
        http.post("/link/v1/submit", data=encode(Submit(1, tuple(items)))) as answer,
    ):
        return [result.verdict for result in decode_as(await answer.read(), Ack).results]


async def test_week_without_central_with_three_failovers(front: Front, clock: ManualClock) -> None:
    first, second = await pair_tokens(front)
    store = front.centre.store
    async with served(front.app) as url:
        async with link_node(url, first) as one:
            await one.ask(known=1)
            await tell(one, front, 0, first_number(2) + 4, "retrying")
        [given] = await front.operate.intents.create(
            OPERATOR, SITE, IntentKind.DISCARD_REJECTED, message_ids=[REJECTED]
        )
        clock.advance(ALMOST_A_WEEK_S)
        # Meanwhile node 1 took epoch 3, node 0 epoch 4 and node 1 epoch 5. Each sent notifications; the leader has
        # taken over those of the other, and forwards them too.
        sent = [front.centre.item(notification_id=new_id(clock.now(), bytes([number] * 10))) for number in range(6)]
        async with link_node(url, first) as one, link_node(url, second) as two:
            assert await two.taken(3) == EpochAnswer(1, 3, is_granted=True), "the oldest report comes first"
            assert await one.taken(4) == EpochAnswer(1, 3, is_granted=False), "the lease that this gave is valid"
            assert await two.taken(5) == EpochAnswer(2, 5, is_granted=True)
            assert await one.renew(4) == EpochAnswer(2, 5, is_granted=False)
            assert await submit(url, second, sent) == ["accepted"] * 6
            assert await submit(url, first, sent[:3]) == ["duplicate"] * 3
            await tell(two, front, first_number(2) + 2, first_number(5) + 9, "delivered")
            for _ in range(2):
                await front.commands.sweep()
                await front.commands.settled()
            command = await two.receive(Command)
            assert (command.intent_id, command.kind) == (given.intent_id, "discard_rejected")
            await two.send(CommandResult(command.intent_id, "applied"))
            await two.renew(5)
            await front.commands.sweep()
            await front.commands.settled()
            await one.renew(4)
            assert not [message for node in (one, two) for message in node.heard if isinstance(message, Command)]
    settled = await store.read(intents.get, given.intent_id)
    assert settled is not None
    assert (settled.state.value, settled.attempts) == ("done", 1)
    assert len(await front.centre.rows("select notification_id from notifications")) == 6
    history = await store.read(switches.newest, SITE, 10)
    assert [(switch.epoch, switch.node, switch.cause.value) for switch in history] == [
        (5, 1, "silence"),
        (4, 0, "silence"),
        (3, 1, "silence"),
        (2, 0, "granted"),
    ]
    call = await store.read(cached_calls.get, SITE, CALL)
    mirror = await store.read(mirrors.load, SITE)
    assert call is not None
    assert mirror is not None
    assert (call.report.status.value, call.gone_at) == ("delivered", None)
    assert (mirror.round, mirror.replaced_count, mirror.cursor) == (1, 0, first_number(5) + 9)

"""A text that a type shortened: the target's row says so."""

import pytest

from fieldpost.core.delivery.adapter import Envelope
from fieldpost.core.delivery.outcome import Delivered, Outcome, TransientFailure, fold
from fieldpost.core.notification import Status, Target, TargetStatus
from fieldpost.testing import ManualClock
from support.centre import Centre

DELIVERED = TargetStatus.DELIVERED
SHORT, WHOLE = Target("a@example.org", DELIVERED, truncated_to=4096), Target("b@example.org", DELIVERED)


@pytest.mark.req("CHN-05")
async def test_the_row_of_a_target_records_to_what_its_text_was_truncated(mailing: Centre) -> None:
    await mailing.add_list("crew", SHORT.address, WHOLE.address)
    mailing.adapter.answer("crew", fold((SHORT, WHOLE)))
    sent = await mailing.send("crew")
    await mailing.deliver()
    n = await mailing.get(sent)
    assert (n.status, n.targets) == (Status.DELIVERED, (SHORT, WHOLE))


@pytest.mark.req("CHN-05", "DEC-10")
async def test_truncation_recorded_in_the_middle_of_an_attempt_stays(mailing: Centre, clock: ManualClock) -> None:
    await mailing.add_list("crew", SHORT.address, WHOLE.address)

    async def partly(envelope: Envelope) -> Outcome:
        await envelope.record_reached([SHORT])
        return TransientFailure("451")

    mailing.adapter.answer("crew", partly, Delivered())
    sent = await mailing.send("crew")
    await mailing.deliver()
    assert (await mailing.get(sent)).targets[0] == SHORT
    clock.advance(100)
    await mailing.deliver()
    assert (await mailing.get(sent)).targets == (SHORT, WHOLE)

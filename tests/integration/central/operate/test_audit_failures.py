"""An action that cannot be audited does not happen."""

import pytest
from sqlalchemy.exc import DBAPIError

from fieldpost.central.operate.operate import Operate
from fieldpost.core.actor import Actor, Role
from fieldpost.core.delivery.outcome import PermanentFailure
from support.audit_refusal import allow_audit, refuse_audit
from support.centre import Centre

OPERATOR = Actor("ada", Role.OPERATOR)


@pytest.mark.fault(61)
@pytest.mark.req("DEC-14")
@pytest.mark.parametrize("verb", ["retry", "discard"])
async def test_a_retry_or_discard_that_cannot_be_audited_changes_nothing(mailing: Centre, verb: str) -> None:
    mailing.adapter.answer("ops", PermanentFailure("550 unknown"))
    parked = await mailing.send()
    await mailing.deliver()
    before = await mailing.get(parked)
    operate = Operate.over(mailing.store, {}, mailing.clock)
    act = getattr(operate.notifications, verb)

    await mailing.execute(*refuse_audit(mailing, "new.kind = 'operator_action'"))
    with pytest.raises(DBAPIError, match="planted"):
        await act(OPERATOR, parked, before.version)
    assert await mailing.get(parked) == before

    await mailing.execute(allow_audit(mailing))
    after = await act(OPERATOR, parked, before.version)
    assert after.status.value == {"retry": "pending", "discard": "discarded"}[verb]

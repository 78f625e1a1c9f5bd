"""An operator looks at breakers and resets one."""

import pytest

from fieldpost.central.operate.breakers import Breakers
from fieldpost.core.actor import Actor, Role
from fieldpost.core.audit import AuditKind
from fieldpost.core.delivery.outcome import Held
from fieldpost.core.errors import Denied, NotFound
from fieldpost.core.notification import Status
from support.centre import Centre

OPERATOR = Actor("ada", Role.OPERATOR)


@pytest.mark.req("DEC-22")
async def test_reset_breaker_releases_its_held_rows_at_once(mailing: Centre) -> None:
    breakers = Breakers(mailing.store, mailing.clock)
    mailing.adapter.answer("ops", Held("connection refused"))
    held = await mailing.send()
    await mailing.deliver(breaker_failures_max=1, breaker_break_s=3600)
    assert [(b.key, b.health) for b in await breakers.all()] == [("channel:mail", "blocked")]
    assert (await mailing.get(held)).held_by == "channel:mail"

    after = await breakers.reset(OPERATOR, "channel:mail")

    assert (after.health, after.failures) == ("healthy", 0)
    await mailing.deliver(breaker_failures_max=1, breaker_break_s=3600)
    found = await mailing.get(held)
    assert (found.status, found.retry_count) == (Status.DELIVERED, 0)


async def test_a_reset_is_audited_with_the_operators_name(mailing: Centre) -> None:
    mailing.adapter.answer("ops", Held("connection refused"))
    await mailing.send()
    await mailing.deliver()

    await Breakers(mailing.store, mailing.clock).reset(OPERATOR, "channel:mail")

    def acts(conn: object) -> list[tuple[str, str, str]]:
        found = conn.exec_driver_sql(  # type: ignore[attr-defined]
            "select actor, target, request_summary from audit where kind = 'operator_action'"
        )
        return [tuple(row) for row in found]

    assert AuditKind.OPERATOR_ACTION == "operator_action"
    assert await mailing.store.read(acts) == [("ada", "channel:mail", "breaker.reset")]


async def test_viewer_may_see_breakers_but_not_reset_one(mailing: Centre) -> None:
    breakers = Breakers(mailing.store, mailing.clock)
    with pytest.raises(Denied, match="operator"):
        await breakers.reset(Actor("vic", Role.VIEWER), "channel:mail")


@pytest.mark.parametrize("key", ["channel:nobody", "", "a\x00b"])
async def test_a_breaker_that_never_failed_is_not_found(mailing: Centre, key: str) -> None:
    with pytest.raises(NotFound, match="does not exist"):
        await Breakers(mailing.store, mailing.clock).reset(OPERATOR, key)

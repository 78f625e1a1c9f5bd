"""Commands about the whole installation: hand in without a site, wait, and the doctor who asks over the API."""

import asyncio
import json

import pytest

from support.commands import Cli


@pytest.mark.req("ING-03")
async def test_a_notification_can_be_handed_in_and_waited_for(cli: Cli) -> None:
    await cli.front.deliver()
    sent = await cli("notifications", "send", "ops", "Order 7", "is late", "--key", "o-7", role="operator")
    again = await cli("notifications", "send", "ops", "Order 7", "is late", "--key", "o-7", role="operator")
    assert (sent.code, sent.out) == (0, again.out), sent.err
    watching = await cli.begin("notifications", "explain", sent.out.strip(), "--watch", role="viewer")
    assert watching.stderr is not None
    async with asyncio.timeout(30):
        assert b"pending" in await watching.stderr.readline()
        await cli.front.centre.deliver()
        out, err = await watching.communicate()
    assert (watching.returncode, b"delivered" in err) == (0, True)
    assert out.startswith(b"It was delivered")


@pytest.mark.bad_input(49)
async def test_what_cannot_be_handed_in_is_refused_in_one_line(cli: Cli) -> None:
    cases = [
        (("ops", "two\nlines", "x"), "operator", 3, "text.line_break"),
        (("", "s", "x"), "operator", 3, "text.empty"),
        (("ops", "s", "x", "--key", "a b"), "operator", 3, "http.idempotency_key"),
        (("ops", "s", "x"), "viewer", 6, "access.role"),
        (("ops", "s"), "operator", 2, "Missing argument"),
    ]
    for arguments, role, code, word in cases:
        ran = await cli("notifications", "send", *arguments, role=role)
        assert (ran.code, word in ran.err) == (code, True), (arguments, ran)
        assert "Traceback" not in ran.err


async def test_the_doctor_looks_at_the_whole_installation(cli: Cli) -> None:
    await cli.front.park()
    ran = await cli("doctor", "--remote", "--json", role="viewer")
    checks = {check["name"]: check["status"] for check in json.loads(ran.out)["checks"]}
    assert (checks["api"], checks["central"], checks["breakers"], checks["parked"]) == ("ok", "ok", "ok", "warning")
    assert [status for name, status in checks.items() if name.startswith("site ")] == ["warning"]
    assert ran.code == 0, "a warning is no failure"
    unreachable = await cli("doctor", "--remote", "--url", "http://127.0.0.1:9", role="viewer")
    assert unreachable.code == 7

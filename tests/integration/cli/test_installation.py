"""Commands about the whole installation: hand in without a site, wait, and the doctor who asks over the API."""

import asyncio
import html
import json
import re
from datetime import timedelta

import pytest

from fieldpost.clock import SystemClock
from fieldpost.core.actor import Role
from fieldpost.core.delivery.outcome import Held
from support.commands import Cli
from support.front import ADMIN
from support.visitor import visiting


@pytest.mark.req("ING-03")
async def test_notification_can_be_submitted_and_awaited(cli: Cli) -> None:
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
async def test_invalid_submission_is_rejected_in_one_line(cli: Cli) -> None:
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


async def test_all_surfaces_show_the_same_issues(cli: Cli) -> None:
    """One of each severity: a silent dispatcher, parked notifications, a blocked channel, a lease that nobody holds."""
    front = cli.front
    await front.park()
    front.centre.adapter.always["ops"] = Held("connection refused", phase="connect")
    for _ in range(5):
        await front.centre.send("ops")
        await front.centre.deliver()
        front.clock.advance(20)
    front.clock.advance(60)
    async with front.client("viewer") as client:
        health = (await client.get("/api/v1/health")).json()
        exposed = (await client.get("/metrics")).text
    codes = [issue["code"] for issue in health["issues"]]
    assert health["status"] == "critical"
    assert {"central.dispatcher", "channel.blocked", "notifications.parked", "central.leader"} <= set(codes)
    found = re.findall(r'^fieldpost_issues\{code="([^"]+)",severity="([^"]+)"\} 1\.0$', exposed, re.MULTILINE)
    assert set(found) == {(issue["code"], issue["severity"]) for issue in health["issues"]}
    ran = await cli("doctor", "--remote", "--json", role="viewer")
    checks = json.loads(ran.out)["checks"]
    assert [check["name"] for check in checks] == ["api", *codes]
    assert ran.code == 9, "the doctor fails on issues worse than a warning"
    async with visiting(front, "viewer") as visitor:
        page, other = [(await visitor.client.get(path)).text for path in ("/", "/sites")]
    shown = [html.unescape(text) for text in re.findall(r'<a href="[^"]+"><bdi>([^<]+\.)</bdi></a>', page)]
    assert shown == [issue["text"] for issue in health["issues"]]
    for text in (page, other):
        badges = dict(re.findall(r'<b class="count">(\d+)<span class="hidden"> (\w+)', text))
        assert {label: count for count, label in badges.items()}["issues"] == str(len(codes))


async def test_the_doctor_fails_as_a_command_when_central_is_unreachable(cli: Cli) -> None:
    unreachable = await cli("doctor", "--remote", "--url", "http://127.0.0.1:9", role="viewer")
    assert unreachable.code == 7


async def test_the_doctor_says_how_to_renew_a_token_that_expires_soon(cli: Cli) -> None:
    ahead = SystemClock().now() - cli.front.clock.now()  # the command reads the clock of this machine
    for name, days in (("nightly import", 5), ("wallboard", 60)):
        await cli.front.operate.tokens.add(ADMIN, name, Role.VIEWER, life=ahead + timedelta(days=days))
    ran = await cli("doctor", "--remote")
    assert "renew it: fieldpost tokens rotate 'nightly import'" in ran.out
    assert "wallboard" not in ran.out

"""What may be asked of `GET /api/v1/notifications`, and what is refused, by the parameter and the rule."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import pytest

from support.front import Front

PATH = "/api/v1/notifications"


async def found(front: Front, caller: str = "viewer", **query: str) -> list[str]:
    async with front.client(caller) as client:
        answer = await client.get(PATH, params=query)
    assert answer.status_code == 200, (query, answer.text)
    return [line["notification_id"] for line in answer.json()["notifications"]]


async def check_refused(front: Front, cases: dict[str, tuple[int, str, str]]) -> None:
    """Each query is answered by this status, code and field."""
    async with front.client("viewer") as client:
        for query, (status, code, field) in cases.items():
            answer = await client.get(f"{PATH}?{query}")
            told = answer.json()
            assert (answer.status_code, told.get("code"), told.get("field")) == (status, code, field), query[:80]


@pytest.mark.bad_input(45)
@pytest.mark.req("KPI-11", "KPI-12")
async def test_search_text_is_taken_literally(front: Front) -> None:
    """No pattern, no SQL, no regular expression: a name is that name, and a word is that word."""
    sent = {
        text: await front.centre.send(text, subject=f"100 {text} done", site=text)
        for text in ("100%", "a_b", "o'brien", "'; drop table notifications; --", "x.*y", "[a-z]", '"quoted"', "axb")
    }
    for text, notification_id in sent.items():
        assert await found(front, list=text) == [notification_id], text
        assert await found(front, site=text) == [notification_id], text
    for text in ("%", "_", "a%", "O'BRIEN", "x..y", ".*", "' or '1'='1", "\\", "*", "x" * 256):
        assert await found(front, list=text) == [], text
        assert await found(front, site=text) == [], text
    assert await found(front, subject="'; DROP") == [sent["'; drop table notifications; --"]]
    assert await found(front, subject="x.*y") == [sent["x.*y"]], "the words x and y, in any order"
    assert await found(front, subject="ax") == [], "no part of a word"
    assert len(await found(front, subject="100 done")) == len(sent)
    assert len(await found(front)) == len(sent), "all is still there"


@pytest.mark.bad_input(45)
async def test_overlong_or_invalid_text_is_rejected(front: Front) -> None:
    long = "x" * 10_000
    cases = {f"{name}={long}": (422, "text.too_long", name) for name in ("list", "site", "type", "subject")}
    cases |= {f"{name}=": (422, "text.empty", name) for name in ("list", "site", "type")}
    cases |= {f"{name}=%00": (422, "text.nul", name) for name in ("list", "site", "type", "subject")}
    cases |= {"list=%0A": (422, "text.empty", "list"), "list=a%0Ab": (422, "text.control", "list")}
    cases |= {"site=%20x": (422, "text.space", "site"), "subject=a%0Ab": (422, "text.line_break", "subject")}
    cases |= {f"subject={text}": (422, "filter.words", "subject") for text in ("", "%25_-")}
    cases["subject=" + "%20".join(f"w{n}" for n in range(17))] = (422, "filter.words", "subject")
    cases |= {f"error={text}": (422, "filter.error", "error") for text in ("", "x", "A" * 12, "0" * 13, long)}
    await check_refused(front, cases)


@pytest.mark.bad_input(46)
@pytest.mark.threat(8)
async def test_unknown_limits_orders_and_parameters_are_rejected(front: Front) -> None:
    cases = {
        f"limit={text}": (422, "limit.range", "limit")
        for text in ("0", "-1", "201", "1e9", "1000000000000", "1.0", "", "%D9%A1", "ten", "%2B5")
    }
    cases |= {
        f"{name}={value}": (422, "query.unknown", name)
        for name, value in {
            "offset": "1000000000",
            "sort": "subject",
            "order": "desc",
            "page": "2",
            "body": "x",
        }.items()
    }
    cases |= {
        f"{name}=a&{name}=b": (422, "query.twice", name)
        for name in ("limit", "cursor", "site", "list", "type", "subject", "from", "to", "stuck", "overdue", "error")
    }
    cases |= {f"status={text}": (422, "filter.choice", "status") for text in ("PARKED", "", "forwarding", "0")}
    cases |= {
        f"{name}={text}": (422, "filter.truth", name)
        for name in ("stuck", "overdue")
        for text in ("1", "yes", "TRUE", "")
    }
    await check_refused(front, cases)
    await front.centre.send()
    assert len(await found(front, limit="200")) == 1


@pytest.mark.bad_input(47)
async def test_times_are_in_utc_and_in_their_order(front: Front) -> None:
    """A time without a zone may name two moments or none, where a clock is set back or forward: it is refused."""
    wrong = (
        "2026-03-29T02:30:00",  # in the gap of a spring night, somewhere
        "2026-11-15T08:00:00%2B01:00",
        "2026-11-15",
        "2026-13-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-11-15T24:00:01Z",
        "2026-11-15 08:00:00Z",
        "20261115T080000Z",
        "yesterday",
        "1763193600",
        "",
        "%D9%A2026-11-15T08:00:00Z",
    )
    await check_refused(front, {f"{f}={t}": (422, "filter.time", f) for f in ("from", "to") for t in wrong})
    later, sooner = "2026-11-15T08:00:01Z", "2026-11-15T08:00:00Z"
    await check_refused(front, {f"from={later}&to={sooner}": (422, "filter.range", "from")})
    sent = await front.centre.send()
    assert await found(front, **{"from": sooner, "to": sooner}) == [], "from one moment to the same there is nothing"
    at = (await front.centre.get(sent)).created_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert await found(front, **{"from": at}) == [sent]
    assert await found(front, to=at) == []
    assert await found(front, **{"from": "0001-01-01T00:00:00Z", "to": "9999-12-31T23:59:59Z"}) == [sent]


async def first_page(front: Front, caller: str) -> dict[str, Any]:
    async with front.client(caller) as client:
        page: dict[str, Any] = (await client.get(PATH, params={"limit": 2})).json()
    return page


@pytest.mark.bad_input(48)
async def test_a_cursor_is_opaque_and_one_that_was_tampered_with_is_refused(front: Front) -> None:
    await front.centre.send_many(5)
    cursor = str((await first_page(front, "viewer"))["next_cursor"])
    plain = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    others = [
        urlsafe_b64encode(text.encode()).decode().rstrip("=")
        for text in (plain.upper(), plain + "0", "-" + plain, f"0{plain}", plain.replace(".", ",", 1), f"{10**17}.x")
    ]
    bad = ["", "%00", "AAAA", "A" * 5000, cursor + "%3D", cursor + "A", cursor[:-1], "' or 1=1", *others]
    await check_refused(front, {f"cursor={text}": (400, "cursor.invalid", "cursor") for text in bad})


@pytest.mark.bad_input(48)
@pytest.mark.threat(7)
async def test_cursor_of_another_user_gives_no_rights(front: Front) -> None:
    sent = sorted(await front.centre.send_many(5), reverse=True)
    cursor = str((await first_page(front, "admin"))["next_cursor"])
    assert await found(front, "viewer", limit="2", cursor=cursor) == sent[2:4]
    async with front.client("site") as client:
        assert (await client.get(PATH, params={"cursor": cursor})).status_code == 401

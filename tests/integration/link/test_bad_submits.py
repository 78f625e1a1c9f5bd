"""What a site may say wrongly: refused by name on either way in, with nothing written, and central goes on."""

import json
from typing import Any

import msgspec
import pytest

from fieldpost.core.notification import Provenance, Status
from fieldpost.link.codec import encode
from fieldpost.link.messages import Ack, Item, Refusal, Result, Submit
from fieldpost.testing import ManualClock
from support.centre import SITE
from support.front import ADMIN
from support.line import WAYS, Line, Way, receive, submit_of

NAN = b'{"t":"submit","seq":1,"items":[],"x":%s}'


async def results(line: Line, way: Way, *items: Any, token: str | None = None) -> tuple[Result, ...]:
    answer = await line.tell(way, submit_of(*items), token)
    assert isinstance(answer, Ack), answer
    return answer.results


async def refused(line: Line, way: Way, content: bytes) -> str:
    answer = await line.tell(way, content)
    assert isinstance(answer, Refusal), answer
    assert answer.error
    return answer.code


def item(line: Line, **changes: Any) -> dict[str, Any]:
    return {**msgspec.to_builtins(line.front.centre.item()), **changes}


@pytest.mark.bad_input(9)
@pytest.mark.req("DEC-12", "ING-05")
async def test_the_same_id_with_other_content_is_a_conflict_that_is_audited(line: Line, clock: ManualClock) -> None:
    first = item(line)
    await results(line, "websocket", first)
    before = await line.front.centre.get(first["notification_id"])
    for number, way in enumerate(WAYS, 1):
        clock.advance(1)
        [result] = await results(line, way, {**first, "body": "other"})
        assert (result.verdict, result.code) == ("rejected", "notification.conflict")
        assert await line.rows() == (1, 1 + number)
    assert await line.front.centre.get(first["notification_id"]) == before
    entries = await line.front.centre.audit(first["notification_id"])
    assert [entry.status for entry in entries] == ["submitted", "failed", "failed"]


@pytest.mark.bad_input(10)
@pytest.mark.threat(1, 3)
@pytest.mark.req("DEC-12")
async def test_id_of_another_site_is_a_conflict_without_details(line: Line) -> None:
    other = (await line.front.operate.sites.add(ADMIN, "plant-8")).token
    theirs = item(line, subject="secret-subject", body="secret-body", list_name="secret-list")
    await results(line, "post", theirs, token=other)
    before = await line.front.centre.get(theirs["notification_id"])
    for way in WAYS:
        for claim in (item(line, notification_id=theirs["notification_id"]), theirs):
            [result] = await results(line, way, claim)
            assert (result.verdict, result.code) == ("rejected", "notification.conflict")
            told = encode(result).decode()
            assert "secret" not in told
            assert "plant-8" not in told
    assert await line.front.centre.get(theirs["notification_id"]) == before
    assert await line.status(theirs["notification_id"]) == 404


@pytest.mark.bad_input(11)
@pytest.mark.threat(1)
@pytest.mark.req("DEC-12")
async def test_a_site_that_gives_another_name_than_its_tokens_is_rejected(line: Line) -> None:
    for way in WAYS:
        liar, honest = item(line, site="plant-8"), item(line, site=SITE)
        verdicts = [(r.verdict, r.code) for r in await results(line, way, liar, honest)]
        assert verdicts == [("rejected", "submit.other_site"), ("accepted", None)]
        assert (await line.front.centre.get(honest["notification_id"])).provenance.site == SITE
        assert await line.status(liar["notification_id"]) == 404
    assert await line.rows() == (2, 2)


@pytest.mark.bad_input(12)
@pytest.mark.req("TBL-02")
async def test_an_id_in_another_spelling_is_rejected_and_never_becomes_a_second_row(line: Line) -> None:
    right = item(line)
    await results(line, "post", right)
    known = right["notification_id"]
    spellings = {
        "capitals": known.upper(),
        "braces": f"{{{known}}}",
        "no dashes": known.replace("-", ""),
        "urn": f"urn:uuid:{known}",
        "nil": "00000000-0000-0000-0000-000000000000",
        "max": "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "spaces": f" {known} ",
        "line break": f"{known}\n",
        "NUL": f"{known}\x00",
        "full-width digits": known.translate({ord(d): ord(d) + 0xFEE0 for d in "0123456789"}),
        "long": "x" * 1000,
        "empty": "",
    }
    for way in WAYS:
        for name, spelling in spellings.items():
            [result] = await results(line, way, {**right, "notification_id": spelling})
            assert (name, result.verdict, result.code) == (name, "rejected", "notification.bad_id")
            assert len(result.notification_id) <= 64
    assert await line.rows() == (1, 1)
    for spelling in (known.upper(), f"{{{known}}}", known.replace("-", ""), "x" * 1000, "%00"):
        assert await line.status(spelling) == 404
    # Escaped it is the same id to every parser, so it is the same row.
    escaped = submit_of(right).replace(known.encode(), f"\\u003{known[0]}{known[1:]}".encode())
    answer = await line.tell("post", escaped)
    assert isinstance(answer, Ack)
    assert answer.results[0].verdict == "duplicate"


@pytest.mark.bad_input(13)
@pytest.mark.req("DEC-36")
async def test_json_that_parsers_read_differently_is_refused(line: Line) -> None:
    good = item(line)
    text = json.dumps(good)
    doubled = text[:-1] + ', "subject": "other"}'
    escaped = text[:-1] + ', "\\u0073ubject": "other"}'
    hostile = {
        "a key twice": (b'{"t":"submit","seq":1,"items":[],"items":[%s]}' % text.encode(), "json.duplicate_key"),
        "a key twice in an item": (b'{"t":"submit","seq":1,"items":[%s]}' % doubled.encode(), "json.duplicate_key"),
        "a key twice, escaped": (b'{"t":"submit","seq":1,"items":[%s]}' % escaped.encode(), "json.duplicate_key"),
        "a key twice in what is unknown": (NAN % b'{"a":{"b":1,"b":1}}', "json.duplicate_key"),
        "the tag twice": (b'{"t":"hello","t":"submit","seq":1,"items":[]}', "json.duplicate_key"),
        "NaN": (NAN % b"NaN", "json.number"),
        "Infinity": (NAN % b"Infinity", "json.number"),
        "-Infinity": (NAN % b"-Infinity", "json.number"),
        "1e999": (NAN % b"1e999", "json.number"),
        "-1e999": (NAN % b"-1e999", "json.number"),
        "5,000 digits": (NAN % (b"9" * 5000), "json.number"),
        "5,000 digits as seq": (b'{"t":"submit","seq":%s,"items":[]}' % (b"1" * 5000), "json.number"),
        "a seq beyond measure": (b'{"t":"submit","seq":9007199254740993,"items":[]}', "link.invalid"),
        "a seq below zero": (b'{"t":"submit","seq":-1,"items":[]}', "link.invalid"),
        "a seq that is true": (b'{"t":"submit","seq":true,"items":[]}', "link.invalid"),
    }
    for way in WAYS:
        for name, (content, code) in hostile.items():
            assert (name, await refused(line, way, content)) == (name, code)
    assert await line.rows() == (0, 0)


@pytest.mark.bad_input(13)
@pytest.mark.threat(2)
async def test_a_key_twice_among_very_many_is_found_without_delay(line: Line) -> None:
    """Looking each key up among all others would take minutes, with everybody else waiting."""
    keys = ",".join(f'"{number:x}":0' for number in range(10_900))
    content = f'{{"t":"submit","seq":1,"items":[],"x":{{{keys},"z":0,"z":0}}}}'.encode()
    for way in WAYS:
        assert await refused(line, way, content) == "json.duplicate_key"


@pytest.mark.bad_input(14)
@pytest.mark.req("DEC-36")
async def test_json_nested_beyond_reason_is_refused(line: Line) -> None:
    deep, many = b"[" * 10_000, b"[[],[]]," * 200_000
    hostile = {
        "arrays without end": (b"[" * 100_000, "json.too_many"),
        "arrays": (deep, "json.too_deep"),
        "closed arrays": (deep[:-1] + b"]" * 9_999, "json.too_deep"),
        "objects": (b'{"a":' * 9_000, "json.too_deep"),
        "in an unknown field": (NAN % (b"[" * 9_000 + b"]" * 9_000), "json.too_deep"),
        "in an item": (
            b'{"t":"submit","seq":1,"items":[{"x":%s}]}' % (b"[" * 9_000 + b"]" * 9_000),
            "json.too_deep",
        ),
        "values without end": (NAN % (b"[" + many + b"0]"), "json.too_many"),
    }
    for way in WAYS:
        for name, (content, code) in hostile.items():
            assert (name, await refused(line, way, content)) == (name, code)
    assert await line.rows() == (0, 0)


@pytest.mark.bad_input(15)
@pytest.mark.req("DEC-36")
async def test_anything_but_utf8_is_refused(line: Line) -> None:
    good = submit_of(item(line, body="Füllstand"))
    plain = json.dumps(json.loads(good), ensure_ascii=False)
    at = plain.encode().index("ü".encode())
    raw = plain.encode()
    hostile = {
        "Latin-1": (plain.encode("latin-1"), "json.not_utf8"),
        "overlong": (raw[:at] + b"\xc0\x80" + raw[at + 2 :], "json.not_utf8"),
        "surrogate": (raw[:at] + b"\xed\xa0\x80" + raw[at + 2 :], "json.not_utf8"),
        "cut in a character": (raw[: at + 1], "json.not_utf8"),
        "byte order mark": (b"\xef\xbb\xbf" + raw, "json.malformed"),
        "UTF-16": (plain.encode("utf-16"), "json.not_utf8"),
        "UTF-16 without a mark": (good.decode().encode("utf-16-le"), "json.malformed"),
        "UTF-16, the other way round": (good.decode().encode("utf-16-be"), "json.malformed"),
        "UTF-32": (good.decode().encode("utf-32"), "json.not_utf8"),
        "UTF-7": (b"+AHsAIgB0ACI-", "json.malformed"),
        "nothing": (b"", "json.malformed"),
        "a NUL after the end": (raw + b"\x00", "json.malformed"),
    }
    for way in WAYS:
        for name, (content, code) in hostile.items():
            assert (name, await refused(line, way, content)) == (name, code)
    assert await line.rows() == (0, 0)
    for number, way in enumerate(WAYS):
        answer = await line.tell(way, raw)
        assert isinstance(answer, Ack)
        assert answer.results[0].verdict == ("duplicate" if number else "accepted")


@pytest.mark.bad_input(17)
@pytest.mark.req("DEC-13")
async def test_in_a_batch_each_item_is_judged_for_itself(line: Line) -> None:
    for way in WAYS:
        good = [item(line) for _ in range(3)]
        numbered = item(line, subject=7)
        batch = [
            good[0],
            item(line, subject="two\nlines"),
            numbered,
            "no object",
            good[1],
            {"list_name": "ops"},
            item(line, body="\ud800"),
            good[2],
            None,
        ]
        answers = await results(line, way, *batch)
        assert [(r.verdict, r.code) for r in answers] == [
            ("accepted", None),
            ("rejected", "text.line_break"),
            ("rejected", "link.invalid"),
            ("rejected", "link.invalid"),
            ("accepted", None),
            ("rejected", "link.invalid"),
            ("rejected", "text.surrogate"),
            ("accepted", None),
            ("rejected", "link.invalid"),
        ]
        assert answers[2].notification_id == numbered["notification_id"]
        assert "subject" in str(answers[2].error)
        assert "notification_id" in str(answers[5].error)
        for one in good:
            assert await line.status(one["notification_id"]) == 200
    assert await line.rows() == (6, 6)


@pytest.mark.bad_input(17)
@pytest.mark.threat(2)
async def test_a_batch_has_a_limit_and_may_be_empty(line: Line) -> None:
    many = [line.front.centre.item() for _ in range(501)]
    for way in WAYS:
        assert await results(line, way) == ()
        assert await refused(line, way, submit_of(*many)) == "submit.too_many"
        assert await refused(line, way, submit_of(*many[:500], 7)) == "submit.too_many"
        assert await refused(line, way, submit_of(*[{}] * 100_001)) in ("submit.too_many", "json.too_many")
        assert await refused(line, way, submit_of(*range(9_001))) == "submit.too_many"
        assert await refused(line, way, b'{"t":"submit","seq":1,"items":null}') == "link.invalid"
    assert await line.rows() == (0, 0)
    assert {r.verdict for r in await results(line, "post", *many[:500])} == {"accepted"}


@pytest.mark.bad_input(18)
@pytest.mark.req("DEC-04", "TBL-12")
async def test_time_of_the_site_may_be_any_text_and_does_not_affect_the_order(line: Line, clock: ManualClock) -> None:
    front = line.front
    await front.centre.add_channel()
    await front.centre.add_list()
    given = [
        "9999-12-31T23:59:59Z",
        "2026-01-01T00:00:00+14:00",
        "2016-12-31T23:59:60Z",
        "2026-01-01T08:00:00",
        "0001-01-01T00:00:00+14:00",
        "tomorrow\x00\x07 " + "x" * 500,
        "",
        "1970-01-01T00:00:00Z",
    ]
    sent = [item(line, enqueued_at=text) for text in given]
    for number, one in enumerate(sent):
        clock.advance(1)
        [result] = await results(line, WAYS[number % 2], one)
        assert result.verdict == "accepted"
    for wrong in (1767225600, True, {"at": 1}):
        [result] = await results(line, "websocket", item(line, enqueued_at=wrong))
        assert (result.verdict, result.code) == ("rejected", "link.invalid")
    rows = [await front.centre.get(one["notification_id"]) for one in sent]
    assert [row.created_at for row in rows] == sorted(row.created_at for row in rows)
    assert [(str(row.site_enqueued_at), row.site_enqueued_text) for row in rows[:5]] == [
        ("9999-12-31 23:59:59+00:00", None),
        ("2025-12-31 10:00:00+00:00", None),
        ("None", "2016-12-31T23:59:60Z"),
        ("None", "2026-01-01T08:00:00"),
        ("None", "0001-01-01T00:00:00+14:00"),
    ]
    assert rows[5].site_enqueued_text is not None
    assert len(rows[5].site_enqueued_text.encode()) <= 64
    await front.centre.deliver(slots=1)
    assert front.centre.adapter.sent() == [one["notification_id"] for one in sent]


@pytest.mark.bad_input(19)
@pytest.mark.threat(3)
async def test_unknown_fields_change_nothing(line: Line, clock: ManualClock) -> None:
    """A receiver ignores what it does not know, and takes nothing into the row but what an item has."""
    columns = {
        "type": "pager",
        "status": "delivered",
        "retry_count": 99,
        "created_at": "1970-01-01T00:00:00Z",
        "due_at": "9999-01-01T00:00:00Z",
        "delivered_at": "2026-01-01T00:00:00Z",
        "delivery_key": "list:other",
        "claim_owner": "me",
        "version": 7,
        "cycle": 7,
        "digest": "00",
        "type_data": {"a": 1},
        "source_site_id": "plant-8",
        "held_by": "channel:mail",
        "targets": ["mallory@example.org"],
        "__class__": "x",
    }
    for way in WAYS:
        sent = item(line, **columns)
        answer = await line.tell(way, submit_of(sent, site="plant-8", role="admin", credits=1_000_000))
        assert isinstance(answer, Ack)
        assert [r.verdict for r in answer.results] == ["accepted"]
        row = await line.front.centre.get(sent["notification_id"])
        assert (row.type, row.status) == ("unresolved", Status.PENDING)
        assert (row.retry_count, row.version, row.cycle) == (0, 1, 1)
        assert (row.created_at, row.due_at, row.delivered_at) == (clock.now(), clock.now(), None)
        assert (row.delivery_key, row.held_by, row.targets) == ("list:ops", None, ())
        assert row.provenance == Provenance(SITE)
        assert (await line.front.centre.claim_of(sent["notification_id"]))[0] is None


@pytest.mark.bad_input(19)
@pytest.mark.req("DSP-15", "RES-08")
async def test_type_without_an_adapter_parks_with_its_name(line: Line) -> None:
    await line.front.centre.add_list("duty", type="pager")
    sent = item(line, list_name="duty")
    assert [r.verdict for r in await results(line, "websocket", sent)] == ["accepted"]
    await line.front.centre.deliver()
    row = await line.front.centre.get(sent["notification_id"])
    assert row.status is Status.PARKED
    assert "pager" in str(row.last_error)


@pytest.mark.bad_input(19)
async def test_a_message_of_an_unknown_kind_is_refused_and_the_connection_stays(line: Line) -> None:
    async with line.websocket() as websocket:
        for content in (b'{"t":"from_the_future","seq":4}', b'{"seq":4}', b"[]", b'"submit"', b"7", b'{"t":7,"seq":4}'):
            await websocket.send_bytes(content)
            refusal = await receive(websocket)
            assert isinstance(refusal, Refusal)
            assert refusal.code == "link.invalid"
            assert refusal.seq == (4 if b"4" in content else None)
        await websocket.send_bytes(encode(Submit(5, (line.front.centre.item(),))))
        assert isinstance(await receive(websocket), Ack)


async def test_errors_do_not_repeat_long_input(line: Line) -> None:
    for way in WAYS:
        answer = await line.tell(way, b'{"t":"%s","seq":1,"items":[]}' % (b"x" * 100_000))
        assert isinstance(answer, Refusal)
        assert len(answer.error) < 500
        [result] = await results(line, way, Item("x" * 100_000, "ops", "s", "b"))
        assert len(encode(result)) < 500

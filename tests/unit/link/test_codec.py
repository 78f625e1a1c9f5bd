"""What is refused before it is read, and what is saved of a message that does not fit."""

import json
import tracemalloc
import zlib
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.errors import InvalidInput
from fieldpost.link.codec import (
    RATIO_FREE_BYTES,
    check_json,
    compress,
    decode,
    decode_as,
    decompress,
    encode,
    salvage,
    seq_of,
)
from fieldpost.link.messages import (
    FRAME_BYTES_MAX,
    ITEMS_MAX,
    Ack,
    CallRow,
    Item,
    LinkMessage,
    ReconcileAnswer,
    Result,
    Submit,
)
from fieldpost.link.values import VALUES_MAX, values_max_of_kind

BATCH = Submit(
    7, (Item("id-1", "ops", "Pump „3“ \u2028", 'a "b" \\ \n', script="watch.py"), Item("id-2", "ops", "", ""))
)
ANSWER = Ack(7, (Result("id-1", "accepted"), Result("id-2", "later", "c", "e", 0.5)), 500, 0.25)

PIECES = [
    b'"seq":7,',
    b'"body":"b",',
    b"\\u0041",
    b" ",
    b"1e999",
    b"9" * 40,
    b"NaN",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"[" * 9,
]
"""What two parsers may read in two ways, to be put anywhere."""


def code_of(data: bytes) -> str | None:
    try:
        check_json(data)
    except InvalidInput as error:
        return error.code
    return None


@pytest.mark.threat(2)
@pytest.mark.parametrize("text", ["1,2,", "[[[", "{{{", '\\"', "\\\\", '\\",[', '\\\\\\",'], ids=repr)
def test_content_of_a_text_does_not_count_as_values(text: str) -> None:
    """A long list in a body, or JSON in it, is just a text."""
    body = json.loads(f'"{text}"') * VALUES_MAX
    assert code_of(encode(Submit(1, (Item("id", "ops", "s", body),)))) is None


@pytest.mark.threat(2)
@pytest.mark.parametrize(
    "value", [b"0", b"[]", b"{}", b'""', b'"\\""', b'"\\\\"', b'{"a":"[,"}', b"[[[0]]]", b'{"a":{"b":"c"}}']
)
def test_too_many_values_are_rejected_before_they_are_created(value: bytes) -> None:
    assert code_of(b"[" + b",".join([value] * (VALUES_MAX + 1)) + b"]") == "json.too_many"


def test_maximum_number_of_values_is_accepted() -> None:
    assert code_of(b"[" + b",".join([b"0"] * VALUES_MAX) + b"]") is None


def test_salvaged_submit_keeps_valid_items_and_answers_others_by_position() -> None:
    good = Item("good", "ops", "s", "b")
    sent = [{"notification_id": "x" * 100, "list_name": 1}, json.loads(encode(good)), [], {"notification_id": 7}]
    saved = salvage(json.dumps({"t": "submit", "seq": 3, "items": sent}).encode())
    assert saved is not None
    submit, answers = saved
    assert submit == Submit(3, (good,))
    assert sorted(answers) == [0, 2, 3]
    assert (answers[0].verdict, answers[0].code) == ("rejected", "link.invalid")
    assert "list_name" in str(answers[0].error)
    assert len(answers[0].notification_id) == 64 - 2, "cut, with a mark that takes three bytes"
    assert answers[3].notification_id == ""


@pytest.mark.parametrize(
    "fields",
    [
        {"t": "hello", "seq": 1, "items": []},
        {"seq": 1, "items": []},
        {"t": "submit", "items": []},
        {"t": "submit", "seq": "1", "items": []},
        {"t": "submit", "seq": -1, "items": []},
        {"t": "submit", "seq": 1, "items": {}},
        {"t": "submit", "seq": 1, "items": "[]"},
        [],
        None,
    ],
    ids=repr,
)
def test_other_messages_cannot_be_salvaged(fields: object) -> None:
    assert salvage(json.dumps(fields).encode()) is None


def test_number_of_a_rejected_message_is_found_if_it_has_one() -> None:
    assert seq_of(b'{"t":"tomorrow","seq":4,"x":[{}]}') == 4
    for data in (b"", b"[]", b'{"seq":"4"}', b'{"seq":-4}', b"{", b'{"x":' + b"[" * 100_000, b"\xff"):
        assert seq_of(data) is None


def test_deeply_nested_message_is_read_or_rejected_by_name() -> None:
    def nested(depth: int) -> str | None:
        try:
            decode(b'{"t":"hello","protocol":1,"version":"x","new":' + b"[" * depth + b"]" * depth + b"}")
        except InvalidInput as error:
            return error.code
        return None

    assert nested(10) is None
    assert {nested(depth) for depth in range(900, 1010, 5)} <= {None, "json.too_deep"}
    assert nested(5000) == "json.too_deep"


def test_compressed_and_plain_messages_are_read() -> None:
    plain = encode(Submit(1, (Item("id", "ops", "s", "b" * 1000),)))
    packed = compress(plain)
    assert len(packed) < len(plain) / 5
    assert decompress(packed) == plain
    assert decompress(plain) is plain
    assert decode(decompress(packed)) == decode(plain)


LINES = b"".join(b"%06d 2026-11-15T12:00:00Z pump %d stopped\n" % (n, n % 97) for n in range(100_000))
LINES = LINES[: FRAME_BYTES_MAX - 1000]


@pytest.mark.bad_input(16)
@pytest.mark.threat(31)
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (zlib.compress(LINES + b"x" * (FRAME_BYTES_MAX + 1 - len(LINES))), "link.too_large"),
        (zlib.compress(LINES * 10, 1), "link.too_large"),
        (zlib.compress(bytes(FRAME_BYTES_MAX)), "link.ratio"),
        (zlib.compress(bytes(10 * FRAME_BYTES_MAX), 9), "link.ratio"),
        (zlib.compress(bytes(RATIO_FREE_BYTES + 1)), "link.ratio"),
        (zlib.compress(b"{}")[:-3], "link.compressed"),
        (zlib.compress(b"{}") + b"{}", "link.compressed"),
        (b"\x78", "link.compressed"),
        (b"\x78\x9c\xff\xff\xff", "link.compressed"),
        (b"x" * 1000, "link.compressed"),
    ],
)
def test_message_that_unpacks_beyond_the_limit_or_not_at_all_is_rejected(data: bytes, code: str) -> None:
    tracemalloc.start()
    with pytest.raises(InvalidInput) as caught:
        decompress(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.code == code
    assert peak < 3 * FRAME_BYTES_MAX


def test_message_of_exactly_the_limit_unpacks() -> None:
    whole = LINES + b"x" * (FRAME_BYTES_MAX - len(LINES))
    assert decompress(zlib.compress(whole)) == whole
    assert len(decompress(zlib.compress(bytes(RATIO_FREE_BYTES)))) == RATIO_FREE_BYTES


@pytest.mark.threat(31)
def test_repetitive_text_compressed_by_our_sender_unpacks() -> None:
    for body in (" " * 250_000, "Pump 3 stopped. " * 15_000, "x" * 70_000, "x" * 60_000):
        plain = encode(Submit(1, (Item("id", "ops", "s", body),) * 8))
        packed = compress(plain)
        assert decompress(packed) == plain
        assert len(packed) < len(plain) / 2


@pytest.mark.threat(31)
def test_limit_of_values_follows_from_the_message_type() -> None:
    row = msgspec.json.encode(dict.fromkeys(CallRow.__struct_fields__))
    rows = b",".join([row] * ITEMS_MAX)
    told: list[int] = []

    def told_by(data: bytes) -> str | None:
        told.clear()
        try:
            decode(data, told.append)
        except InvalidInput as error:
            return error.code
        return None

    assert values_max_of_kind(ReconcileAnswer) == 2 * 8_009
    for tag in (b"telemetry", b"reconcile_answer"):
        assert told_by(b'{"t":"%s","rows":[%s]}' % (tag, rows)) == "link.invalid", "it was parsed"
        assert told == [8_002]
        assert told_by(b'{"t":"%s","rows":[%s,%s,%s]}' % (tag, rows, rows, rows)) == "json.too_many"
        assert told == [], "refused before the strict parser"
    assert told_by(b'{"t":"health","rows":[%s]}' % rows) == "json.too_many", "a report of health has no rows"
    assert told_by(b'{"rows":[%s,%s,%s]}' % (rows, rows, rows)) == "json.too_many", "so has no message without a tag"
    assert told_by(encode(BATCH)) is None
    assert told == [], "our own batches are not counted"
    with pytest.raises(InvalidInput, match="more than 14006 values"):
        decode_as(b'{"t":"submit","items":[%s]}' % (b",".join([b"0"] * 15_000)), Submit)


def outcome(read: Callable[[bytes], LinkMessage], data: bytes) -> LinkMessage | str:
    try:
        return read(data)
    except InvalidInput as error:
        return error.code


def read_twice(data: bytes) -> LinkMessage:
    """The rule that `decode` keeps, the slow way: strict first, typed afterwards."""
    check_json(data)
    try:
        return msgspec.json.decode(data, type=LinkMessage)
    except msgspec.DecodeError as error:
        raise InvalidInput("link.invalid", str(error)) from None


@pytest.mark.threat(2)
@pytest.mark.parametrize("message", [BATCH, msgspec.structs.replace(BATCH, more=True), ANSWER])
@given(cut=st.integers(0, 400), length=st.integers(0, 9), put=st.binary(max_size=9) | st.sampled_from(PIECES))
def test_batch_and_its_answer_are_read_strictly(message: Submit | Ack, cut: int, length: int, put: bytes) -> None:
    written = encode(message)
    assert decode(written) == message
    data = written[:cut] + put + written[cut + length :]
    assert outcome(decode, data) == outcome(read_twice, data)


@pytest.mark.threat(2)
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (encode(BATCH).replace(b'"seq":7', b'"seq":7,"seq":7'), "json.duplicate_key"),
        (encode(BATCH).replace(b'"id-2"', b'"id-2","notification_id":"id-2"'), "json.duplicate_key"),
        (encode(BATCH).replace(b"id-2", b"\xed\xa0\x80"), "json.not_utf8"),
        (encode(BATCH).replace(b"id-2", b"\\ud800"), "link.invalid"),
        (encode(ANSWER).replace(b"500", b"5" * 40), "json.number"),
        (encode(ANSWER).replace(b"0.25", b"NaN"), "json.number"),
        (encode(ANSWER).replace(b"0.25", b"1e999"), "json.number"),
        (encode(Submit(1, (Item("", "", "", ""),) * 30_000)), "json.too_many"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_ambiguous_json_is_rejected_in_a_batch_too(data: bytes, code: str) -> None:
    assert outcome(decode, data) == code


def test_batch_of_too_many_small_items_passes_the_codec() -> None:
    many = Submit(1, (Item("i", "l", "s", "b"),) * (ITEMS_MAX + 1))
    assert decode(encode(many)) == many

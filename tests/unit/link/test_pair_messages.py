"""Messages between the nodes of a pair are read strictly, although most of them skip the strict parser."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.errors import InvalidInput
from fieldpost.link.codec import check_json, encode
from fieldpost.link.pair_messages import PairMessage, decode_pair
from fieldpost.link.pair_rows import (
    CallCells,
    CallState,
    ChangeBatch,
    KeyCells,
    MessageCells,
    RecordCells,
    RowState,
    SnapshotPiece,
    StreamPosition,
)

CALL = CallCells(
    message_id="c", category="external_call", target="erp", payload="{}", status="pending", created_at=5, claim_left=-1
)
RECORD = RecordCells(
    call_id="c",
    category="external_call",
    target_summary="erp POST /orders",
    status="pending",
    created_at=5,
    updated_at=6,
    version=2**32,
    change_sequence=7,
)
BATCH = ChangeBatch(
    epoch=2,
    known=2,
    after=StreamPosition(),
    until=StreamPosition(2**33 + 1, 9),
    received=StreamPosition(4, 5),
    messages=(MessageCells(2**33, "id-1", '{"subject":"Pump „3“"}', 5),),
    changes=(
        RowState(kind="call", id="c", number=8, is_new=True, call=CallState(RECORD, CALL)),
        RowState(kind="key", id="k", number=9, key=KeyCells("k", "id-1", b"\x00\xff", 5)),
    ),
)
PIECE = SnapshotPiece(
    epoch=2, known=2, received=StreamPosition(), kind="call", after="", until=None, rows=BATCH.changes[:1]
)
PIECES = [b'"kind":"key",', b"\\u0041", b" ", b"1e999", b"9" * 40, b"NaN", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"[" * 9]
"""What two parsers may read in two ways, to be put anywhere."""


def outcome(read: Callable[[bytes], PairMessage], data: bytes) -> PairMessage | str:
    try:
        return read(data)
    except InvalidInput as error:
        return error.code


def read_twice(data: bytes) -> PairMessage:
    """The rule that `decode_pair` keeps, the slow way: strict first, typed afterwards."""
    check_json(data)
    try:
        message: PairMessage = msgspec.json.decode(data, type=PairMessage)
    except msgspec.DecodeError as error:
        raise InvalidInput("link.invalid", str(error)) from None
    return message


@pytest.mark.bad_input(59)
@pytest.mark.parametrize("message", [BATCH, PIECE], ids=["batch", "piece"])
@given(cut=st.integers(22, 900), length=st.integers(0, 9), put=st.binary(max_size=9) | st.sampled_from(PIECES))
def test_batch_and_piece_are_read_strictly(message: PairMessage, cut: int, length: int, put: bytes) -> None:
    written = encode(message)
    assert decode_pair(written) == message
    data = written[:cut] + put + written[cut + length :]
    assert outcome(decode_pair, data) == outcome(read_twice, data)


@pytest.mark.bad_input(59)
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (encode(BATCH).replace(b'"number":8', b'"number":8,"number":8'), "json.duplicate_key"),
        (encode(BATCH).replace(b'"created_at":5', b'"created_at":%d' % 2**63), "link.invalid"),
        (encode(msgspec.structs.replace(BATCH, messages=BATCH.messages * 30_000)), "json.too_many"),
    ],
)
def test_ambiguous_and_too_large_batches_are_rejected(data: bytes, code: str) -> None:
    assert outcome(decode_pair, data) == code

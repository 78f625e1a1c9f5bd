"""Encoding and strict decoding of link messages.

Decoding checks the JSON before its types: duplicate keys, NaN, huge numbers, deep nesting and invalid UTF-8 are
rejected, because two parsers that read such a message differently would store different data.

A batch from our own sender skips that check: its bytes equal our own encoding of the decoded message, so each key
occurs once and every parser reads it the same way.

A message may be compressed if both peers support it. Each message is compressed on its own: keeping a compression
window for each of a thousand connections would cost more memory than the messages themselves.
"""

import json
import zlib
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Hashable
from math import isfinite
from typing import Any, NoReturn, TypeVar, cast

import msgspec

from fieldpost.core.errors import InvalidInput
from fieldpost.core.text import truncate
from fieldpost.link.messages import (
    FRAME_BYTES_MAX,
    ITEMS_MAX,
    REJECTED,
    SEQ_MAX,
    Ack,
    Item,
    LinkMessage,
    Result,
    Seq,
    Submit,
)
from fieldpost.link.values import SMALL_BYTES, VALUES_MAX, check_values, values_max_of, values_max_of_kind

T = TypeVar("T")

UNFIT = "link.invalid"
"""The error code for valid JSON that violates the protocol."""
DIGITS_MAX = 32
"""The most digits of a number; no number of the protocol comes close."""
RATIO_MAX = 100
"""How many times its size a compressed message may have when decompressed; ordinary ones have ten to twenty."""
RATIO_FREE_BYTES = 64 * 1024
"""A message of this size may be compressed to any size."""
ERROR_QUOTE_BYTES_MAX = 300
"""The length of a quoted decoding error; it may quote the message itself."""


_ZLIB_MARK = b"\x78"
"""The first byte of a zlib stream with the usual window."""


class _Numbered(msgspec.Struct):
    seq: Seq


_encoder = msgspec.json.Encoder()
_message: msgspec.json.Decoder[LinkMessage] = msgspec.json.Decoder(LinkMessage)
_numbered = msgspec.json.Decoder(_Numbered)
_batches: dict[bytes, msgspec.json.Decoder[Any]] = {
    b'{"t":"submit"': msgspec.json.Decoder(Submit),
    b'{"t":"ack","s': msgspec.json.Decoder(Ack),
}
"""Decoders of the messages with hundreds of rows, by their first bytes."""
_TAG_BYTES = 13


def encode(message: msgspec.Struct) -> bytes:
    return _encoder.encode(message)


def decode(data: bytes, on_values: Callable[[int], None] | None = None) -> LinkMessage:
    """Decode a link message, or raise InvalidInput with the reason and place.

    Before the strict parser runs, `on_values` gets the number of values that it will read, to charge the sender.
    """
    plain = _as_written(data)
    if plain is not None:
        return plain
    values_max = values_max_of(data) if len(data) > SMALL_BYTES else 0
    _check_strictly(data, FRAME_BYTES_MAX, values_max, on_values)
    return _typed(_message, data)


def decode_as(data: bytes, kind: type[T], on_values: Callable[[int], None] | None = None) -> T:
    """Decode one kind of struct, for routes that accept or return only that."""
    _check_strictly(data, FRAME_BYTES_MAX, values_max_of_kind(cast(Hashable, kind)), on_values)
    return _typed(msgspec.json.Decoder(kind), data)


def decode_written(decoder: "msgspec.json.Decoder[T]", data: bytes) -> T | None:
    """Decode a message if its bytes equal our own encoding of it; None if the strict check must decide."""
    if len(data) > FRAME_BYTES_MAX:
        return None
    try:
        message = decoder.decode(data)
        return message if _encoder.encode(message) == data else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError):
        return None


def compress(data: bytes) -> bytes:
    """Compress a message for a slow line; the fastest level achieves most of the gain.

    A very repetitive message is compressed less, so that the receiver does not mistake it for a bomb.
    """
    packed = zlib.compress(data, 1)
    if len(data) <= _inflated_max(len(packed)):
        return packed
    packing = zlib.compressobj(1, strategy=zlib.Z_HUFFMAN_ONLY)
    return packing.compress(data) + packing.flush()


def decompress(data: bytes, bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """The plain message, decompressed if necessary. InvalidInput if it is corrupt, too large or grows too much.

    Decompression stops at the limit.
    """
    if not data.startswith(_ZLIB_MARK):
        return data
    inflating = zlib.decompressobj()
    inflated_max = min(bytes_max, _inflated_max(len(data)))
    try:
        plain = inflating.decompress(data, inflated_max)
    except zlib.error as error:
        raise InvalidInput("link.compressed", f"the message cannot be decompressed: {error}") from None
    if not inflating.eof:
        if inflating.unconsumed_tail or len(plain) >= inflated_max:
            if inflated_max < bytes_max:
                raise InvalidInput("link.ratio", f"the message is compressed to less than 1/{RATIO_MAX} of its size")
            raise InvalidInput("link.too_large", f"the message has more than {bytes_max} bytes when decompressed")
        raise InvalidInput("link.compressed", "the compressed message is truncated")
    if inflating.unused_data:
        raise InvalidInput("link.compressed", "the compressed message has trailing data")
    return plain


def salvage(data: bytes) -> tuple[Submit, dict[int, Result]] | None:
    """Split an invalid Submit into its valid items and a rejection for each invalid one, by index.

    One invalid item then does not hold back the others. None if it is not a Submit or its items are not the problem.
    """
    match _strict.decode(data.decode()):
        case {"t": "submit", "seq": seq, "items": [*items]}:
            pass
        case _:
            return None
    if len(items) > ITEMS_MAX:
        raise too_many(len(items))
    fit: list[Item] = []
    unfit: dict[int, Result] = {}
    for place, item in enumerate(items):
        try:
            fit.append(_converted(item, Item))
        except InvalidInput as error:
            unfit[place] = Result(_name(item), REJECTED, error.code, error.message)
    try:
        return Submit(_converted(seq, Seq), tuple(fit)), unfit
    except InvalidInput:
        return None


def _inflated_max(size: int) -> int:
    """The size that a message compressed to `size` bytes may have."""
    return max(RATIO_FREE_BYTES, RATIO_MAX * size)


def too_many(count: int) -> InvalidInput:
    return InvalidInput("submit.too_many", f"a submit must have at most {ITEMS_MAX} items, got {count}", field="items")


def seq_of(data: bytes) -> int | None:
    """The seq of a message that could not be decoded, so that its sender knows which one was refused."""
    try:
        return _numbered.decode(data).seq
    except (msgspec.DecodeError, RecursionError):
        return None


def check_json(data: bytes, bytes_max: int = FRAME_BYTES_MAX) -> None:
    """Raise InvalidInput unless the bytes are one JSON value that every parser reads the same way."""
    _check_strictly(data, bytes_max, VALUES_MAX)


def _check_strictly(
    data: bytes, bytes_max: int, values_max: int, on_values: Callable[[int], None] | None = None
) -> None:
    if len(data) > bytes_max:
        raise InvalidInput("link.too_large", f"the message has {len(data)} bytes; the maximum is {bytes_max}")
    if data.startswith(BOM_UTF8):
        raise InvalidInput("json.malformed", "the message is not JSON: it starts with a byte order mark")
    count = check_values(data, values_max)
    if on_values is not None:
        on_values(count)
    try:
        _strict.decode(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidInput("json.not_utf8", f"the message is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}"
        message = f"the message is not JSON: {error.msg} at {place} column {error.colno}"
        raise InvalidInput("json.malformed", message, field=place) from None


def _as_written(data: bytes) -> Submit | Ack | None:
    """Decode a batch or its answer if the bytes equal our own encoding; None otherwise."""
    decoder = _batches.get(data[:_TAG_BYTES])
    message = None if decoder is None else decode_written(decoder, data)
    return message if message is not None and _is_within_limits(message) else None


def _is_within_limits(message: Submit | Ack) -> bool:
    """Whether the number of items and the size of numbers are within the limits."""
    if isinstance(message, Submit):
        return len(message.items) <= ITEMS_MAX
    return len(message.results) <= ITEMS_MAX and max(abs(message.seq), abs(message.credits)) <= SEQ_MAX


def _typed(decoder: "msgspec.json.Decoder[T]", data: bytes) -> T:
    try:
        return decoder.decode(data)
    except msgspec.DecodeError as error:
        raise _unfit(error) from None
    except RecursionError:
        raise _too_deep() from None


def _converted(value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _unfit(error) from None


def _unfit(error: msgspec.DecodeError) -> InvalidInput:
    return InvalidInput(UNFIT, f"the message violates the protocol: {truncate(str(error), ERROR_QUOTE_BYTES_MAX)}")


def _name(item: object) -> str:
    """The id of an invalid item, if it has one."""
    match item:
        case {"notification_id": str(name)}:
            return truncate(name, 64)
        case _:
            return ""


def _too_deep() -> InvalidInput:
    return InvalidInput("json.too_deep", "the message is nested too deeply")


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        # One pass, because there may be hundreds of thousands of keys.
        twice = truncate(Counter(name for name, _ in pairs).most_common(1)[0][0], 64)
        raise InvalidInput("json.duplicate_key", f"the key {twice!r} occurs twice", field=twice)
    return fields


def _refuse_constant(text: str) -> NoReturn:
    raise InvalidInput("json.number", f"{text} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise _number_too_large(text)
    return number


def _whole(text: str) -> int:
    if len(text) > DIGITS_MAX:
        raise _number_too_large(text)
    return int(text)


def _number_too_large(text: str) -> InvalidInput:
    return InvalidInput("json.number", f"the number {text[:DIGITS_MAX]}… is too large")


_strict = json.JSONDecoder(
    object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_whole
)

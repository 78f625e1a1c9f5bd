"""Bytes to message and back.

Decoding is strict before it is typed: duplicate keys, NaN, numbers beyond measure, absurd depth and anything but UTF-8
are refused, since two parsers that read such a message differently would store different things.

What a sender of ours wrote is found to be strict without being read a second time: it is, byte for byte, what we write
of the same message ourselves, and that holds each key once and nothing that any parser could stumble over.

A message may come compressed where both ends have said that they understand it. Each is compressed by itself: a
thousand connections that kept their windows would cost more memory than all that they carry.
"""

import json
import zlib
from codecs import BOM_UTF8
from collections import Counter
from math import isfinite
from typing import Any, NoReturn, TypeVar

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

T = TypeVar("T")

UNFIT = "link.invalid"
"""The code of what is good JSON and not the protocol's."""
DIGITS_MAX = 32
"""No number of the protocol is nearly as long; one that is costs time and means nothing."""
VALUES_MAX = 100_000
"""Twenty times what the largest message holds; a value of two bytes costs fifty in memory."""
SAID_BYTES_MAX = 300
"""How much of what was wrong is told back: it may quote what was sent."""


_ZLIB_MARK = b"\x78"
"""How every such stream begins that has the usual window."""


class _Numbered(msgspec.Struct):
    seq: Seq


_encoder = msgspec.json.Encoder()
_message: msgspec.json.Decoder[LinkMessage] = msgspec.json.Decoder(LinkMessage)
_numbered = msgspec.json.Decoder(_Numbered)
_batches: dict[bytes, msgspec.json.Decoder[Submit] | msgspec.json.Decoder[Ack]] = {
    b'{"t":"submit"': msgspec.json.Decoder(Submit),
    b'{"t":"ack","s': msgspec.json.Decoder(Ack),
}
"""By how they begin, the messages that hold hundreds of rows."""
_TAG_BYTES = 13


def encode(message: msgspec.Struct) -> bytes:
    return _encoder.encode(message)


def decode(data: bytes) -> LinkMessage:
    """The message, or InvalidInput saying what is wrong and where."""
    plain = _as_written(data)
    if plain is not None:
        return plain
    check_json(data)
    return _typed(_message, data)


def decode_as(data: bytes, kind: type[T]) -> T:
    """The same for one kind of struct, for the routes that take or give just that."""
    check_json(data)
    return _typed(msgspec.json.Decoder(kind), data)


def compress(data: bytes) -> bytes:
    """The message for a line on which bytes are dear; the quickest level has most of what can be gained."""
    return zlib.compress(data, 1)


def decompress(data: bytes, bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """The plain message, whether or not it came compressed. InvalidInput when it is broken or would be too large.

    Never more than the limit is made of it, whatever it claims to hold.
    """
    if not data.startswith(_ZLIB_MARK):
        return data
    inflating = zlib.decompressobj()
    try:
        plain = inflating.decompress(data, bytes_max)
    except zlib.error as error:
        raise InvalidInput("link.compressed", f"the message cannot be decompressed: {error}") from None
    if not inflating.eof:
        if inflating.unconsumed_tail or len(plain) >= bytes_max:
            raise InvalidInput("link.too_large", f"the message has more than {bytes_max} bytes when decompressed")
        raise InvalidInput("link.compressed", "the compressed message is cut short")
    if inflating.unused_data:
        raise InvalidInput("link.compressed", "something follows the compressed message")
    return plain


def salvage(data: bytes) -> tuple[Submit, dict[int, Result]] | None:
    """Of a Submit that was refused as unfit: the items that do fit, and the answer to each other one by its place.

    So one bad item never holds back its neighbours. None when it is no Submit, or its items are not the trouble.
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


def too_many(count: int) -> InvalidInput:
    return InvalidInput("submit.too_many", f"items are {count}, at most {ITEMS_MAX} are taken", field="items")


def seq_of(data: bytes) -> int | None:
    """The number of a message that could not be read as a whole, so that its sender knows which one was refused."""
    try:
        return _numbered.decode(data).seq
    except (msgspec.DecodeError, RecursionError):
        return None


def check_json(data: bytes, bytes_max: int = FRAME_BYTES_MAX) -> None:
    """Raise InvalidInput unless these bytes are one well-formed JSON value that every parser reads the same way."""
    if len(data) > bytes_max:
        raise InvalidInput("link.too_large", f"the message has {len(data)} bytes, at most {bytes_max} are taken")
    if data.startswith(BOM_UTF8):
        raise InvalidInput("json.malformed", "the message is not JSON: it begins with a byte order mark")
    _check_values(data)
    try:
        _strict.decode(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidInput("json.not_utf8", f"the message is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        raise InvalidInput("json.malformed", f"the message is not JSON: {error.msg} at {error.pos}") from None


def _check_values(data: bytes) -> None:
    if len(data) <= VALUES_MAX or _marks(data) <= VALUES_MAX:
        return
    # Texts may hold as many commas and brackets as they like: what stands between the quotation marks is left out.
    plain = data.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > 4 * VALUES_MAX or sum(map(_marks, plain.split(b'"')[::2])) > VALUES_MAX:
        raise InvalidInput("json.too_many", f"the message holds more than {VALUES_MAX} values")


def _marks(data: bytes) -> int:
    """How many values there are at most, but for the first: each is begun by one of these marks."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _as_written(data: bytes) -> Submit | Ack | None:
    """The message of a batch or of its answer, if these bytes are just what `encode` makes of it; else None."""
    decoder = _batches.get(data[:_TAG_BYTES])
    if decoder is None or len(data) > FRAME_BYTES_MAX:
        return None
    try:
        message = decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return message if _is_modest(message) and _encoder.encode(message) == data else None


def _is_modest(message: Submit | Ack) -> bool:
    """Whether it holds no more values, and no longer numbers, than are taken from anybody."""
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
    return InvalidInput(UNFIT, f"the message does not fit the protocol: {truncate(str(error), SAID_BYTES_MAX)}")


def _name(item: object) -> str:
    """The id that an unfit item goes by, if it has one."""
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
        # Counted in one pass: there may be hundreds of thousands of them.
        twice = truncate(Counter(name for name, _ in pairs).most_common(1)[0][0], 64)
        raise InvalidInput("json.duplicate_key", f"the key {twice!r} occurs twice", field=twice)
    return fields


def _refuse_constant(text: str) -> NoReturn:
    raise InvalidInput("json.number", f"{text} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise _beyond_measure(text)
    return number


def _whole(text: str) -> int:
    if len(text) > DIGITS_MAX:
        raise _beyond_measure(text)
    return int(text)


def _beyond_measure(text: str) -> InvalidInput:
    return InvalidInput("json.number", f"the number {text[:DIGITS_MAX]}… is beyond measure")


_strict = json.JSONDecoder(
    object_pairs_hook=_refuse_duplicates, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_whole
)

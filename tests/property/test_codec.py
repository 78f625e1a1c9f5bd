"""Whatever can be said on the link is understood as it was meant."""

import json
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.errors import InvalidInput
from fieldpost.link.codec import decode, decode_as, encode
from fieldpost.link.messages import Ack, Hello, Item, LinkMessage, Refusal, Result, StatusAnswer, Submit

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
maybe = st.none() | text
seq = st.integers(0, 2**53)
seconds = st.none() | st.floats(0, 1e6)

items = st.builds(Item, text, text, text, text, maybe, maybe, maybe, maybe, maybe, maybe)
results = st.builds(Result, text, text, maybe, maybe, seconds)
messages: st.SearchStrategy[LinkMessage] = st.one_of(
    st.builds(Hello, st.integers(0, 100), text, st.integers(0, 10_000)),
    st.builds(Submit, seq, st.lists(items, max_size=5).map(tuple)),
    st.builds(Ack, seq, st.lists(results, max_size=5).map(tuple), st.integers(0, 10_000)),
    st.builds(Refusal, text, text, st.none() | seq, seconds),
)
answers = st.builds(StatusAnswer, text, text, st.integers(0, 10_000), maybe, maybe, maybe, maybe, maybe)


@given(messages)
def test_every_message_round_trips(message: LinkMessage) -> None:
    assert decode(encode(message)) == message


@given(answers)
def test_every_status_answer_round_trips(answer: StatusAnswer) -> None:
    assert decode_as(encode(answer), StatusAnswer) == answer


@given(messages, text.filter(lambda name: name not in ("", "t")))
def test_a_field_of_a_newer_peer_is_ignored(message: LinkMessage, name: str) -> None:
    fields = json.loads(encode(message))
    fields.setdefault("x_" + name, "new")
    assert decode(json.dumps(fields).encode()) == message


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_message_or_invalid_input(data: bytes) -> None:
    with suppress(InvalidInput):
        assert isinstance(decode(data), Hello | Submit | Ack | Refusal)

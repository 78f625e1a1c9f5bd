"""The log's scrubber gives the result of the simple one, whatever the number of secrets."""

import base64
import random
import secrets

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fieldpost.core.log_scrubber import LogScrubber
from fieldpost.core.secret import Scrubber, Secret

CANARY = "kanarie-7f3a&b/c+d é"


def scrubber(*texts: str) -> LogScrubber:
    made = LogScrubber()
    for text in texts:
        made.add(Secret(text))
    return made


FEW_LETTERS = st.text(alphabet="ab\n", max_size=20)
"""So few that forms overlap, contain each other and begin alike."""
WIDE = st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=40)


@given(st.lists(FEW_LETTERS, max_size=60), st.text(alphabet="ab\n", max_size=120))
@example(["aab", "ab", "b"], "aaab")
@example(["a" * 8, "a" * 15], "a" * 40)
def test_result_equals_that_of_the_simple_scrubber_for_overlapping_secrets(texts: list[str], line: str) -> None:
    assert scrubber(*texts)(line) == Scrubber(map(Secret, texts))(line)


@given(st.lists(WIDE, min_size=1, max_size=6), st.data())
def test_result_equals_that_of_the_simple_scrubber_for_encoded_secrets(texts: list[str], data: st.DataObject) -> None:
    encodings = (
        str,
        repr,
        lambda text: base64.b64encode(text.encode()).decode(),
        lambda text: text[1:],
        lambda text: "",
    )
    parts = st.tuples(WIDE, st.sampled_from(texts), st.sampled_from(encodings))
    line = "".join(before + encode(text) for before, text, encode in data.draw(st.lists(parts, max_size=6)))
    assert scrubber(*texts)(line) == Scrubber(map(Secret, texts))(line)


@pytest.mark.parametrize("length", [1, 2, 3, 6, 7, 14, 15, 40])
def test_result_equals_that_of_the_simple_scrubber_for_many_secrets_of_one_length(length: int) -> None:
    draw = random.Random(length)
    texts = ["".join(draw.choices("abcdefgh", k=length)) for _ in range(200)]
    scrub, simple = scrubber(*texts), Scrubber(map(Secret, texts))
    for _ in range(200):
        line = "".join(draw.choice(["xyz", draw.choice(texts), draw.choice(texts)[1:], "a"]) for _ in range(8))
        assert scrub(line) == simple(line)


@pytest.mark.req("ADP-13")
@pytest.mark.threat(23)
@pytest.mark.parametrize("before", range(9))
def test_secret_is_removed_at_every_offset_of_the_line(before: int) -> None:
    line = "x" * before + CANARY + " end"
    assert scrubber(CANARY, "other")(line) == "x" * before + "*** end"


@pytest.mark.threat(23)
def test_all_of_ten_thousand_secrets_are_removed() -> None:
    """None of them drops out when many are known. Cost per line: see the module's docstring."""
    texts = [secrets.token_urlsafe(24) for _ in range(10_000)]
    scrub = scrubber(*texts)
    assert len(scrub) == 10_000
    for text in texts[::97]:
        encoded = base64.b64encode(b"user:" + text.encode()).decode()
        shown = scrub(f"attempt.finished error='401 for {text}' auth={encoded}")
        assert text not in shown
        assert encoded[8:-4] not in shown
    line = "attempt.finished outcome=delivered list=pumps took_s=0.123"
    assert scrub(line) == line


def test_known_secret_is_added_once() -> None:
    scrub = scrubber(CANARY, CANARY, "")
    assert (len(scrub), scrub(f"<{CANARY}>"), scrub("")) == (2, "<***>", "")

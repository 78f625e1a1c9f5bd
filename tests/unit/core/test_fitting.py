"""Fitting texts to the limit of a type."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.core.delivery.fitting import fit, fit_text, in_bytes, in_utf16_units

TAIL = "\n\nhttps://central.example/n/1"
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
MEASURES = {"bytes": in_bytes, "utf16": in_utf16_units, "characters": len}


def compose(subject: str, body: str) -> str:
    return f"{subject}\n{body}{TAIL}"


@pytest.mark.req("CHN-05")
@pytest.mark.parametrize("measure", MEASURES.values(), ids=list(MEASURES))
@given(subject=TEXTS.map(lambda text: text[:20]), body=TEXTS, size_max=st.integers(150, 400))
def test_fitted_message_is_within_its_limit_and_keeps_subject_and_link(
    measure: Callable[[str], int], subject: str, body: str, size_max: int
) -> None:
    fitted = fit(subject, body, compose, measure, size_max)
    assert measure(fitted.message) <= size_max
    assert fitted.message.startswith(subject + "\n")
    assert fitted.message.endswith(TAIL)
    kept = fitted.message.removeprefix(subject + "\n").removesuffix(TAIL)
    if fitted.truncated_to is None:
        assert kept == body
    else:
        assert measure(compose(subject, body)) > size_max
        assert kept.endswith("…")
        assert body.startswith(kept[:-1])
        assert fitted.truncated_to == len(subject) + len(kept)


@pytest.mark.req("CHN-05")
def test_body_is_cut_as_late_as_the_limit_allows() -> None:
    fitted = fit("S", "a" * 256 * 1024, compose, in_bytes, 4096)
    assert in_bytes(fitted.message) == 4096
    assert fit("S", "😀" * 5000, compose, in_utf16_units, 4096).message.count("😀") == (4096 - 3 - len(TAIL)) // 2


@pytest.mark.req("CHN-05")
@pytest.mark.parametrize(
    "character",
    ["e\u0301", "👩\u200d👩\u200d👧", "🇩🇪", "👍🏽", "❤\ufe0f"],
    ids=["accent", "family", "flag", "skin tone", "variation"],
)
def test_no_character_is_split(character: str) -> None:
    for size_max in range(1, 24):
        kept = fit_text("x" + character * 6, len, size_max, mark="")
        assert kept == "x" + character * ((len(kept) - 1) // len(character))


@pytest.mark.req("CHN-05")
def test_subject_is_cut_only_when_it_does_not_fit_alone() -> None:
    fitted = fit("s" * 998, "body", compose, len, 200)
    assert len(fitted.message) == 200
    assert fitted.message.startswith("s" * 100)
    assert fitted.message.endswith("…\n" + TAIL)
    assert "body" not in fitted.message
    assert fitted.truncated_to == 200 - len(TAIL) - 1

"""Forms: their token, and where they may lead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldpost.front.console.kit.forms import form_token, is_form_token, local_path, new_secret


@pytest.mark.parametrize("path", ["/", "/?status=parked&site=a%20b", "/notifications/0198c8a0"])
def test_local_path_is_kept(path: str) -> None:
    assert local_path(path) == path


@pytest.mark.parametrize(
    "text",
    [None, "", "x", "//evil.example", "/\\evil.example", "\\\\evil.example", "http://evil.example",
     "javascript:alert(1)", "/\n/evil.example", "/\tx", "/x\r\nSet-Cookie: a=b", "/" + "x" * 5000],
)  # fmt: skip
def test_any_other_path_becomes_the_first_page(text: str | None) -> None:
    assert local_path(text) == "/"


@given(st.text())
def test_no_text_redirects_to_another_server(text: str) -> None:
    path = local_path(text)
    assert path.startswith("/")
    assert path[1:2] not in ("/", "\\")


def test_each_visitor_has_a_separate_token_that_reveals_nothing_of_the_cookie() -> None:
    mine, theirs = new_secret(), new_secret()
    assert is_form_token(form_token(mine), mine)
    assert not is_form_token(form_token(theirs), mine)
    assert mine not in form_token(mine)
    assert len(mine) >= 22, "128 bits"


@pytest.mark.parametrize("given", ["", "00", "g" * 64, "0" * 62, "0" * 64, "0" * 128, "é" * 64])
def test_any_other_text_is_rejected_as_a_token(given: str) -> None:
    assert not is_form_token(given, "the cookie")

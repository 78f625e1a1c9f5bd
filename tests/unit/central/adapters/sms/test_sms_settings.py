"""Settings of SMS channels: each dialect has its own, and a placeholder cannot be misspelt."""

import json
from typing import Any
from urllib.parse import parse_qsl

import pytest

from fieldpost.central.adapters.sms.adapter import SmsAdapter
from fieldpost.central.adapters.sms.text import sms_cost, sms_text
from fieldpost.core.errors import InvalidInput
from fieldpost.core.secret import Secret
from fieldpost.core.sms.segments import SmsEncoding, count_segments
from fieldpost.testing.world import World, envelope

KANNEL = {"dialect": "kannel", "url": "http://127.0.0.1:13013/x", "username": "a", "password": Secret("canary")}
ROUTER = {"dialect": "http", "url": "https://10.0.0.1/send?to={number}&text={text}&key={password}"}
WORLD = World({}, ("+4915112345678",), list)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({}, "dialect"),
        ({"dialect": "smpp"}, "dialect"),
        ({**KANNEL, "url": "http://10.0.0.1/x"}, "url"),
        ({**KANNEL, "method": "GET"}, "method"),
        ({**KANNEL, "segments_max": 0}, "segments_max"),
        ({**KANNEL, "segments_max": 11}, "segments_max"),
        ({**KANNEL, "sender": "a\nb"}, "sender"),
        ({**KANNEL, "plain_http": "yes"}, "plain_http"),
        ({**KANNEL, "password": "a\r\nb"}, "password"),
        ({"dialect": "twilio", "username": "me", "password": Secret("x"), "sender": "+1"}, "username"),
        ({"dialect": "twilio", "username": "AC" + "0" * 32, "password": Secret("x")}, "sender"),
        ({**ROUTER, "url": "https://10.0.0.1/{numbr}"}, "url"),
        ({**ROUTER, "body": "{tekst}"}, "body"),
        ({**ROUTER, "answers": "OK"}, "answers"),
        ({**ROUTER, "answers": "OK=fine"}, "answers"),
        ({**ROUTER, "number_format": "0"}, "number_format"),
        ({"dialect": "http"}, "url"),
    ],
)
def test_a_bad_setting_is_rejected_naming_its_field(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        SmsAdapter().check_settings(settings)
    assert refused.value.field == field
    assert "canary" not in str(refused.value)


def test_plain_http_in_the_plants_network_is_a_setting_with_a_warning() -> None:
    settings = {**KANNEL, "url": "http://10.0.0.1:13013/x", "plain_http": "allow"}
    checked = SmsAdapter().check_settings(settings)
    assert "anybody on the network can read" in SmsAdapter().warnings(checked)[0]
    assert SmsAdapter().warnings(SmsAdapter().check_settings(KANNEL)) == []


@pytest.mark.parametrize("number", ["015112345678", "+49151abc", "+1234567890123456", "+", "+４９１５１１２３４５", ""])
def test_a_bad_number_is_rejected(number: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        SmsAdapter().check_target(number)
    assert refused.value.field == "target"


def test_placeholders_are_encoded_for_their_place() -> None:
    text = 'a&b=c "quoted" <x> {number} ä\n%d'
    sent = envelope(WORLD, subject=text, body="")
    shown = f"{text}\n{sent.notification_id}"
    base = {"dialect": "http", "username": "u&v", "password": Secret("p&q"), "number_format": "00"}

    def request(**settings: str) -> Any:
        adapter = SmsAdapter()
        checked = adapter.check_settings({**base, **settings})
        return adapter.compose(sent, checked).request("+4915112345678")

    url = "https://g.example/s?n={number}&t={text}&u={username}&p={password}&i={id}"
    by_url = request(url=url, method="GET")
    assert dict(parse_qsl(by_url.url.raw_query_string)) == {
        "n": "004915112345678",
        "t": shown,
        "u": "u&v",
        "p": "p&q",
        "i": sent.notification_id,
    }
    assert "Authorization" not in by_url.headers
    form = request(url="https://g.example/s", body="n={number}&t={text}")
    assert dict(parse_qsl(form.body.decode())) == {"n": "004915112345678", "t": shown}
    assert form.headers["Authorization"].startswith("Basic ")
    as_json = request(
        url="https://g.example/s", body='{"to":["{number}"],"text":"{text}"}', content_type="application/json"
    )
    assert json.loads(as_json.body) == {"to": ["004915112345678"], "text": shown}


@pytest.mark.req("CHN-05")
@pytest.mark.parametrize(
    ("body", "encoding"),
    [("x", SmsEncoding.GSM7), ("ä€", SmsEncoding.GSM7), ("я", SmsEncoding.UCS2), ("😀", SmsEncoding.UCS2)],
)
@pytest.mark.parametrize("segments_max", [1, 3, 10])
def test_long_text_is_truncated_to_its_segments_and_ends_in_three_dots(
    body: str, encoding: SmsEncoding, segments_max: int
) -> None:
    sent = envelope(WORLD, subject="Hot", body=body * 2000)
    fitted = sms_text(sent, segments_max)
    counted = count_segments(fitted.message)
    assert (counted.encoding, counted.count) == (encoding, segments_max)
    assert fitted.message.startswith("Hot\n" + body)
    assert fitted.message.endswith(f"...\n{sent.notification_id}")
    assert fitted.truncated_to is not None


def test_link_replaces_the_id() -> None:
    sent = envelope(WORLD, subject="Hot", body="93 degrees\n", link="https://f.example/n/1")
    assert sms_text(sent, 3).message == "Hot\n93 degrees\nhttps://f.example/n/1"


@pytest.mark.parametrize(
    ("subject", "body", "segments_max", "cost"),
    [
        ("Hot", "93 degrees", 3, "1 segment of GSM-7 per number"),
        ("Hot", "x" * 130, 3, "2 segments of GSM-7 per number"),
        (
            "Hot",
            "93 °C, Насос",
            3,
            "1 segment of UCS-2 per number, because it has characters outside the GSM alphabet: °Насо",
        ),
        (
            "Hot",
            "x" * 600,
            1,
            "1 segment of GSM-7 per number; truncated, because the whole text takes 5 and segments_max is 1",
        ),
    ],
)
def test_the_author_of_a_text_sees_how_many_segments_it_costs(
    subject: str, body: str, segments_max: int, cost: str
) -> None:
    sent = envelope(WORLD, subject=subject, body=body, settings={"segments_max": segments_max})
    assert SmsAdapter().text_cost(sent) == sms_cost(sent, segments_max) == cost
    assert count_segments(sms_text(sent, segments_max).message).count == int(cost[0])

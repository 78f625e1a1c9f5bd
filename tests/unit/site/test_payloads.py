"""What a script may give as a call or a write, checked at the first door."""

from typing import Any

import pytest

from fieldpost.core.errors import InvalidInput
from fieldpost.site.carriers.call_arguments import CALL_BODY_BYTES_MAX, check_call
from fieldpost.site.carriers.payloads import (
    DatabaseWrite,
    ExternalCall,
    decode_call,
    decode_write,
    encode,
    target_summary,
)
from fieldpost.site.carriers.write_arguments import PARAMETERS_BYTES_MAX, check_write
from fieldpost.site.config.database import Database
from fieldpost.site.config.external import External

ERP = External(name="erp", url="https://erp.example.com", secret_headers={"X-Api-Key": "key.secret"})
PLANT = Database(
    name="plant",
    url="sqlite:////plant.db",
    statements={"count": "INSERT INTO counts VALUES (:call_id, :unit, :n)", "clear": "DELETE FROM counts"},
)
FREE = Database(name="free", url="sqlite:////free.db", allows_free_sql=True)


@pytest.mark.req("MSG-05")
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"json": {"a": [1, 2.5, None, True, "ü"]}},
        {"body": "text ü"},
        {"body": b"\x00\xff", "headers": {"Content-Type": "image/png", "X-A": "b"}},
        {"query": {"a": 1, "b": ["x", "y"], "c": True, "d": 1.5}},
    ],
)
def test_payload_round_trip_of_a_call(arguments: Any) -> None:
    call = check_call(ERP, "post", "/orders", **arguments)
    assert decode_call(encode(call)) == call
    assert call.method == "POST"


@pytest.mark.req("MSG-07")
def test_payload_round_trip_of_a_write() -> None:
    write = check_write(PLANT, "count", {"unit": "press ü", "n": -(1 << 63)})
    assert write == DatabaseWrite("count", {"unit": "press ü", "n": -(1 << 63)})
    for parameters in ({"a": 1.5, "b": True}, {"a": None, "b": (1 << 63) - 1}, {"a": "x" * 1000, "b": False}):
        free = check_write(FREE, "INSERT INTO t VALUES (:a, :b)", parameters)
        again = decode_write(encode(free))
        assert again == free
        assert [type(value) for value in again.parameters.values()] == [type(v) for v in parameters.values()]


@pytest.mark.req("TRK-05")
def test_the_summary_names_the_system_and_method_or_the_connection() -> None:
    assert target_summary("erp", ExternalCall("POST", "/orders", query=(("a", "b"),))) == "erp POST /orders"
    assert target_summary("plant", DatabaseWrite("count")) == "plant"
    assert len(target_summary("erp", ExternalCall("POST", "/" + "ü" * 900)).encode()) <= 256


@pytest.mark.bad_input(8)
@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"method": "TRACE"}, "method"),
        ({"method": "GET / HTTP/1.1\r\nX: y\r\n\r\n"}, "method"),
        ({"method": None}, "method"),
        ({"path": "orders"}, "path"),
        ({"path": ""}, "path"),
        ({"path": None}, "path"),
        ({"path": "//evil.example/x"}, "path"),
        ({"path": "https://evil.example/"}, "path"),
        ({"path": "/a/../b"}, "path"),
        ({"path": "/.."}, "path"),
        ({"path": "/..;/admin"}, "path"),
        ({"path": "/a/%2e%2e;x=1/admin"}, "path"),
        ({"path": "/a/./b"}, "path"),
        ({"path": "/a/%2e%2e/b"}, "path"),
        ({"path": "/a/%2E./b"}, "path"),
        ({"path": "/a/..%2fb"}, "path"),
        ({"path": "/a/%252e%252e/b"}, "path"),
        ({"path": "/a\\..\\b"}, "path"),
        ({"path": "/a%5c..%5cb"}, "path"),
        ({"path": "/a?b=c"}, "path"),
        ({"path": "/a#b"}, "path"),
        ({"path": "/a\r\nX: y"}, "path"),
        ({"path": "/a%0d%0aX: y"}, "path"),
        ({"path": "/a%zz"}, "path"),
        ({"path": "/\ud800"}, "path"),
        ({"path": "/" + "a" * 2048}, "path"),
        ({"query": "a=b"}, "query"),
        ({"query": {"a": None}}, "query.a"),
        ({"query": {"a": float("nan")}}, "query.a"),
        ({"query": {"a": {"b": 1}}}, "query.a"),
        ({"query": {7: 1}}, "query"),
        ({"query": {"a": "x" * 9000}}, "query"),
        ({"headers": ["a"]}, "headers"),
        ({"headers": {"X-A": "b\r\nX-B: c"}}, "headers.X-A"),
        ({"headers": {"X-A": "b\nc"}}, "headers.X-A"),
        ({"headers": {"X-A": "ü"}}, "headers.X-A"),
        ({"headers": {"X-A": 7}}, "headers.X-A"),
        ({"headers": {"X-A": " b"}}, "headers.X-A"),
        ({"headers": {"X-A": "b" * 5000}}, "headers.X-A"),
        ({"headers": {"X A": "b"}}, "headers.X A"),
        ({"headers": {"X\r\nY": "b"}}, "headers"),
        ({"headers": {7: "b"}}, "headers.7"),
        ({"headers": {"host": "evil.example"}}, "headers.host"),
        ({"headers": {"Content-Length": "3"}}, "headers.Content-Length"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, "headers.Transfer-Encoding"),
        ({"headers": {"AUTHORIZATION": "Bearer x"}}, "headers.AUTHORIZATION"),
        ({"headers": {"Idempotency-Key": "x"}}, "headers.Idempotency-Key"),
        ({"headers": {"x-api-key": "x"}}, "headers.x-api-key"),
        ({"headers": {"X-A": "1", "x-a": "2"}}, "headers.x-a"),
        ({"headers": {f"X-{number}": "1" for number in range(51)}}, "headers"),
        ({"json": {"a": float("inf")}}, "json"),
        ({"json": {"a": {1, 2}}}, "json"),
        ({"json": "\ud800"}, "json"),
        ({"json": {}, "body": ""}, "body"),
        ({"body": 7}, "body"),
        ({"body": "\ud800"}, "body"),
        ({"body": "x" * (CALL_BODY_BYTES_MAX + 1)}, "body"),
        ({"body": b"x" * CALL_BODY_BYTES_MAX}, "body"),
    ],
)
def test_invalid_call_is_rejected_naming_the_argument(arguments: dict[str, Any], field: str) -> None:
    given: dict[str, Any] = {"method": "POST", "path": "/orders"} | arguments
    with pytest.raises(InvalidInput) as caught:
        check_call(ERP, given.pop("method"), given.pop("path"), **given)
    assert caught.value.field == field
    assert len(str(caught.value)) < 500


def test_json_that_contains_itself_is_rejected() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidInput, match="json cannot be written"):
        check_call(ERP, "POST", "/orders", json=loop)


@pytest.mark.bad_input(8)
@pytest.mark.threat(26)
@pytest.mark.parametrize("statement", ["INSERT INTO counts VALUES (1)", "count; DROP TABLE counts", "other", "", 7])
def test_undefined_statement_is_rejected_unless_free_sql_is_allowed(statement: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_write(PLANT, statement, {})
    assert caught.value.field == "statement"


@pytest.mark.threat(26)
@pytest.mark.parametrize(
    "statement", ["DROP TABLE t", "DELETE FROM t; DELETE FROM u", "DELETE FROM t WHERE a = ?", "nothing", "PRAGMA x"]
)
def test_free_sql_must_be_one_write_with_named_parameters(statement: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_write(FREE, statement, {})
    assert caught.value.field == "statement"


@pytest.mark.bad_input(8)
@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"unit": "a"}, "parameters.n"),
        ({"unit": "a", "n": 1, "m": 2}, "parameters.m"),
        ({"unit": "a", "n": 1, "call_id": "x"}, "parameters.call_id"),
        ({"unit": "a", "n": float("nan")}, "parameters.n"),
        ({"unit": "a", "n": float("-inf")}, "parameters.n"),
        ({"unit": "a", "n": 1 << 63}, "parameters.n"),
        ({"unit": "a", "n": [1]}, "parameters.n"),
        ({"unit": "a", "n": {"a": 1}}, "parameters.n"),
        ({"unit": b"a", "n": 1}, "parameters.unit"),
        ({"unit": "a\x00b", "n": 1}, "parameters.unit"),
        ({"unit": "\ud800", "n": 1}, "parameters.unit"),
        ({"unit": "x" * PARAMETERS_BYTES_MAX, "n": 1}, "parameters"),
        ({7: 1}, "parameters"),
        ({"a b": 1}, "parameters"),
        ([1, 2], "parameters"),
    ],
)
def test_invalid_parameter_is_rejected_by_name(parameters: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_write(PLANT, "count", parameters)
    assert caught.value.field == field

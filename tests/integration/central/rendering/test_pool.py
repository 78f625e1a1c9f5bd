"""Hostile templates and payloads in the child processes: bounded, named, and nothing is rendered twice."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest

from fieldpost.central.rendering.composer import RenderJob
from fieldpost.central.rendering.pool import RenderPool
from fieldpost.core.errors import InvalidInput
from fieldpost.core.events.template import Rendered, RenderFailure, Template

PAYLOAD = {"service": "api", "n": {"list": [1, 2]}, "big": 10**40}


@pytest.fixture
async def pool() -> AsyncIterator[RenderPool]:
    made = RenderPool()
    yield made
    await made.close()


def job(body: str, payload: object = PAYLOAD, subject: str = "S") -> RenderJob:
    variables = json.dumps({"payload": payload, "event": {"topic": "T"}})
    return RenderJob(Template(topic="T", subject=subject, body=body), variables)


ESCAPES = [
    "{{ ''.__class__ }}",
    "{{ ''.__class__.__mro__ }}",
    "{{ payload.__class__() }}",
    "{{ payload.__reduce_ex__(2) }}",
    "{{ payload.n.list.__reduce_ex__(2)[0] }}",
    "{{ payload['__class__'] }}",
    "{{ (payload | attr('__reduce_ex__'))(2) }}",
    "{{ payload | attr('__class__') | attr('__base__') }}",
    "{{ payload.big.__class__ }}",
    "{{ payload.service.format(payload) }}",
    "{{ payload.service.format_map(payload) }}",
    "{{ range.__globals__ }}",
    "{{ debug() }}",
    "{{ self.__init__ }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ lipsum(n=20000) }}",
    "{% include '/etc/passwd' %}",
    "{% import '/etc/passwd' as x %}",
    "{% extends '/etc/passwd' %}",
]
ENDLESS = [
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{{ ('a' * 1000000) | replace('a', 'b' * 1000) }}",
    "{{ 'a' * 500000000 }}",
    "{% set x = namespace(v='a') %}{% for i in range(60) %}{% set x.v = x.v ~ x.v %}{% endfor %}{{ x.v }}",
    "{{ 10 ** 3000000 }}",
    "{% for i in range(100000) %}aaaaaaaaaa{% endfor %}",
    "{{ range(100000) | list | string * 100 }}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
]
BROKEN = [
    "{{ unclosed",
    "{% if %}",
    "{% endfor %}",
    "{{ payload.service | nofilter }}",
    "{{ 1 / 0 }}",
    "{{ payload.n() }}",
]


@pytest.mark.threat(22)
@pytest.mark.bad_input(38, 39)
@pytest.mark.req("DEC-32", "DEC-86")
@pytest.mark.parametrize("body", [*ESCAPES, *ENDLESS, *BROKEN])
async def test_a_hostile_template_fails_within_its_bounds_and_its_neighbours_are_rendered(
    pool: RenderPool, body: str
) -> None:
    await pool.render([job("warm")])
    began = time.monotonic()
    before, found, after = await pool.render([job("{{ payload.service }}"), job(body), job("{{ event.topic }}")])
    assert (before, after) == (Rendered("S", "api"), Rendered("S", "T"))
    assert isinstance(found, RenderFailure)
    assert found.error
    assert not found.is_ours
    assert len(found.error.encode()) <= 500
    assert time.monotonic() - began < 10


@pytest.mark.bad_input(40)
@pytest.mark.req("DEC-32", "DEC-58")
@pytest.mark.parametrize(
    ("body", "variable"),
    [
        ("{{ payload.missing }}", "payload.missing"),
        ("{{ payload.n.x.y }}", "payload.n.x"),
        ("{{ service }}", "service"),
        ("{% for one in payload.rows %}{% endfor %}", "payload.rows"),
    ],
)
async def test_an_unknown_variable_is_named(pool: RenderPool, body: str, variable: str) -> None:
    [found] = await pool.render([job(body)])
    assert isinstance(found, RenderFailure)
    assert found.variable == variable
    assert variable in found.error


async def test_an_optional_member_is_no_error(pool: RenderPool) -> None:
    body = "{{ payload.note | default('-') }}{% if payload.note is defined %}{{ payload.note }}{% endif %}"
    assert await pool.render([job(body)]) == [Rendered("S", "-")]


@pytest.mark.bad_input(41)
@pytest.mark.req("DEC-86")
async def test_values_are_inserted_as_they_are_and_never_rendered_a_second_time(pool: RenderPool) -> None:
    value = "<b>{{ 1 + 1 }}</b>\r\nBcc: evil@example.net {% raw %} ${x}"
    [found] = await pool.render([job("{{ payload.v }}", {"v": value}, subject="About {{ payload.v }}")])
    assert isinstance(found, Rendered)
    assert found.body == value
    assert found.subject == "About <b>{{ 1 + 1 }}</b> Bcc: evil@example.net {% raw %} ${x}"
    [again] = await pool.render([job(found.body.replace("{% raw %}", ""), {})])
    assert again != found


@pytest.mark.bad_input(41)
@pytest.mark.parametrize("value", ["a\u2028b", "a\x85b", "a\x0bb", "a\n\n\nb", "a\tb", "a\x00b"])
async def test_no_line_break_of_a_value_stays_in_a_subject(pool: RenderPool, value: str) -> None:
    [found] = await pool.render([job("x", {"v": value}, subject="{{ payload.v }}")])
    assert found == Rendered("a b", "x")


@pytest.mark.req("DEC-86")
async def test_a_text_beyond_the_limits_is_an_error_that_names_the_part(pool: RenderPool) -> None:
    long = "a" * 200_000
    results = await pool.render(
        [job("x", {"v": long}, subject="{{ payload.v }}"), job("{{ payload.v }}{{ payload.v }}", {"v": long})]
    )
    errors = [one.error for one in results if isinstance(one, RenderFailure)]
    assert [error.split()[0] for error in errors] == ["subject", "the"]
    assert all("at most" in error for error in errors)


async def test_a_template_cannot_change_what_another_one_sees(pool: RenderPool) -> None:
    results = await pool.render([job("{{ payload.clear() }}"), job("{{ payload.service }}")])
    assert results[1] == Rendered("S", "api")
    [both] = await pool.render([job("{{ payload.service }}", subject="{{ payload.pop('service') }}")])
    assert both == Rendered("api", "api")


async def test_many_batches_share_few_children_and_a_killed_child_is_replaced(pool: RenderPool) -> None:
    jobs = [job("{{ payload.n }}", {"n": number}) for number in range(500)]
    results = await asyncio.gather(*(pool.render(jobs) for _ in range(4)))
    assert all(result == [Rendered("S", str(number)) for number in range(500)] for result in results)
    assert 1 <= len(pool._children._all) <= 2
    for child in tuple(pool._children._all):
        child._process.kill()
        await child._process.wait()
    assert await pool.render(jobs[:3]) == [Rendered("S", str(number)) for number in range(3)]


async def test_the_names_that_a_template_uses(pool: RenderPool) -> None:
    template = Template(topic="T", subject="{{ payload.a.b }}", body="{{ event.topic }}{{ other }}")
    assert await pool.names(template) == ["event.topic", "other", "payload.a.b"]
    with pytest.raises(InvalidInput, match="syntax error"):
        await pool.names(Template(topic="T", subject="{{", body=""))

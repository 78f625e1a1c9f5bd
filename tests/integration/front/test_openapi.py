"""The API's description is complete and true: a program reads it, tries what it says, and finds nothing else.

The long form, every case that the description defines and a viewer too, is in `tests/chaos/test_openapi.py`.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import pytest

from fieldpost.core.errors import InvalidInput
from fieldpost.core.search.filters import NOTIFICATION_FILTERS, FilterField, FilterKind, read_filters
from fieldpost.front.api.openapi import document
from fieldpost.front.api.routes import ROUTES
from fieldpost.front.http.call import ApiAnswer
from fieldpost.link.http.endpoint_spec import filter_parameters
from fieldpost.link.http.view import View
from fieldpost.testing import ManualClock
from support.front import Front, open_front
from support.schemathesis import try_all

ID = "0198c8a0-0000-7000-8000-000000000001"
QUICK = {
    "publisher": ("--phases", "fuzzing", "--max-examples", "2"),
    "subscriber": ("--phases", "fuzzing", "--max-examples", "2"),
    "operator": ("--phases", "fuzzing", "--max-examples", "2"),
    "admin": ("--phases", "examples,fuzzing,stateful", "--max-examples", "3"),
}


def test_every_route_of_the_api_is_described() -> None:
    described = document()["paths"]
    for route in ROUTES:
        if route.path.startswith("/link/"):
            assert route.spec is None, "the link is described by itself"
        else:
            assert route.method.lower() in described[route.path.replace(":path}", "}")], route.path


def test_operations_have_unique_names() -> None:
    names = [one["operationId"] for path in document()["paths"].values() for one in path.values()]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize(
    "field", [field for field in NOTIFICATION_FILTERS if field.kind is FilterKind.TEXT], ids=lambda field: field.name
)
def test_a_text_filter_is_as_long_as_described(field: FilterField) -> None:
    [parameter] = filter_parameters([field])
    longest = "x" * int(str(parameter.schema["maxLength"]))
    assert read_filters([field], {field.name: longest}) == {field.attribute: longest}
    with pytest.raises(InvalidInput):
        read_filters([field], {field.name: longest + "x"})


async def test_a_method_that_a_path_does_not_have_is_refused_naming_those_it_has(front: Front) -> None:
    async with front.client("admin") as client:
        for path, operations in document()["paths"].items():
            if path.startswith("/api/"):
                missing = "PUT" if "put" not in operations else "DELETE"
                answer = await client.request(missing, re.sub(r"\{[^}]*\}", ID, path))
                allowed = set(answer.headers["allow"].split(", ")) - {"HEAD"}
                assert (answer.status_code, allowed) == (405, {method.upper() for method in operations}), path
                assert answer.json()["code"] == "http.method"


async def test_fixed_path_is_not_read_as_an_id(front: Front) -> None:
    async with front.client("admin") as client:
        for path in ("/api/v1/bulk-actions/preview", "/api/v1/notifications/batch"):
            assert (await client.get(path)).status_code == 405, path


@pytest.mark.timeout(180)
@pytest.mark.parametrize("role", QUICK)
async def test_description_holds_for_generated_requests(
    sqlite_url: str, clock: ManualClock, role: str, tmp_path: Path
) -> None:
    """It does not depend on the store."""
    async with open_front(sqlite_url, clock) as front:
        await try_all(front, role, tmp_path, *QUICK[role])


def test_a_handler_returns_the_type_of_its_view() -> None:
    for route in ROUTES:
        answer = route.spec.answer if route.spec else None
        returned = get_type_hints(route.handler)["return"]
        if isinstance(answer, View) and returned is not ApiAnswer:
            is_listing = get_origin(answer.type) is Sequence
            expected, actual = (get_args(answer.type), get_args(returned)) if is_listing else (answer.type, returned)
            assert actual == expected, route.path

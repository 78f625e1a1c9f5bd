"""The rule for a thing that some machines cannot offer: skip with the reason, but fail where CI=true promised it."""

import os
from typing import NoReturn

import pytest


def cannot_have(reason: str) -> NoReturn:
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(f"{reason} (CI=true: a failure, not a skip)", pytrace=False)
    pytest.skip(reason)

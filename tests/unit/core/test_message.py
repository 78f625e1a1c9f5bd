"""What a site buffers: what its category says about it."""

import pytest

from fieldpost.core.message import Category


@pytest.mark.parametrize("category", Category)
def test_cached_calls_are_tracked_and_may_park_and_notifications_neither(category: Category) -> None:
    is_call = category in (Category.EXTERNAL_CALL, Category.DATABASE_WRITE)
    assert category.is_tracked is is_call
    assert category.may_park is is_call

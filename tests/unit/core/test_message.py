"""What a site buffers: what its category says about it."""

import pytest

from fieldpost.core.sites.message import Category


@pytest.mark.parametrize("category", Category)
def test_cached_calls_are_tracked_and_notifications_are_not(category: Category) -> None:
    assert category.is_tracked is (category in (Category.EXTERNAL_CALL, Category.DATABASE_WRITE))

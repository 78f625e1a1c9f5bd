"""Roles and actors."""

import itertools

import pytest

from fieldpost.core.actor import Actor, Role
from fieldpost.core.errors import Denied


def test_a_role_includes_itself_and_those_before_it() -> None:
    order = [Role.VIEWER, Role.OPERATOR, Role.ADMIN]
    for mine, wanted in itertools.product(order, order):
        assert mine.includes(wanted) == (order.index(mine) >= order.index(wanted))


def test_who_lacks_a_role_is_told_which_and_what_he_is() -> None:
    Actor("maria", Role.OPERATOR).require(Role.VIEWER)
    with pytest.raises(Denied, match="needs the role admin; maria is operator"):
        Actor("maria", Role.OPERATOR).require(Role.ADMIN)

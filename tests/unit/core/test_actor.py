"""Who acts: a role may do all that the roles before it may, and no more."""

import pytest

from fieldpost.core.actor import Actor, Role
from fieldpost.core.errors import Denied


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("needed", Role)
def test_a_role_includes_itself_and_those_before_it(role: Role, needed: Role) -> None:
    order = [Role.VIEWER, Role.OPERATOR, Role.ADMIN]
    is_outside = {Role.PUBLISHER, Role.SUBSCRIBER} & {role, needed}
    may = role is needed if is_outside else order.index(role) >= order.index(needed)
    assert role.includes(needed) is may
    if may:
        Actor("ada", role).require(needed)
    else:
        with pytest.raises(Denied) as caught:
            Actor("ada", role).require(needed)
        assert caught.value.code == "access.role"
        assert needed.value in caught.value.message

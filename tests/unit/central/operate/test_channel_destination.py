"""A channel's stored secret is kept only while it goes to the same place."""

import pytest

from fieldpost.central.operate.channel_settings import check_channel_destination
from fieldpost.core.errors import InvalidInput
from fieldpost.core.lists import Channel
from support.centre import ScriptedAdapter


@pytest.mark.threat(32)
@pytest.mark.parametrize("settings", [{"host": "a", "relay": "b"}, {"host": "b"}, {}])
def test_type_without_a_description_requires_its_secrets_again_for_any_other_settings(
    settings: dict[str, object],
) -> None:
    """A setting that was not there before may lead to another host, too."""
    before = Channel("mail", "email", {"host": "a"}, secrets={"password": "sealed"})
    after = Channel("mail", "email", settings, secrets={"password": "sealed"})
    with pytest.raises(InvalidInput, match="password must be given again"):
        check_channel_destination(ScriptedAdapter(), before, after)
    check_channel_destination(ScriptedAdapter(), before, before)
    given = Channel("mail", "email", settings, secrets={"password": "sealed again"})
    check_channel_destination(ScriptedAdapter(), before, given)

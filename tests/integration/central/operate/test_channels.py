"""A channel is saved only for a host that can exist."""

import socket
from collections.abc import Sequence
from typing import Any

import pytest

from fieldpost.central.adapters.email.adapter import EmailAdapter
from fieldpost.central.operate.channels import ChannelActions
from fieldpost.clock import SystemClock
from fieldpost.core.errors import InvalidInput
from fieldpost.outbound.outbound import Outbound
from support.centre import open_centre
from support.front import ADMIN

MAIL: dict[str, Any] = {"host": "mail.plant.example", "tls": "none", "from_address": "alerts@plant.example"}


class Names:
    """A resolver that knows some names, and has no others."""

    def __init__(self, *known: str) -> None:
        self.known = set(known)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        if host in self.known:
            return ["127.0.0.1"]
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.mark.fault(46)
async def test_a_channel_whose_host_does_not_exist_is_neither_added_nor_changed(store_url: str) -> None:
    names = Names("mail.plant.example")
    async with open_centre(store_url, SystemClock()) as centre:
        adapter = EmailAdapter(outbound=Outbound(resolve=names.resolve))
        channels = ChannelActions(centre.store, {"email": adapter}, centre.clock, centre.keyring)
        with pytest.raises(InvalidInput) as refused:
            await channels.add(ADMIN, "typo", "email", MAIL | {"host": "mial.plant.example"})
        assert (refused.value.code, refused.value.field) == ("host.unknown", "settings.host")
        await channels.add(ADMIN, "mail", "email", MAIL)
        with pytest.raises(InvalidInput, match="does not exist"):
            await channels.change(ADMIN, "mail", {"host": "mial.plant.example"}, 1)
        assert [(c.name, c.settings["host"]) for c in await channels.all()] == [("mail", "mail.plant.example")]
        await adapter.close()


async def test_vanished_host_does_not_block_changes_of_other_settings(store_url: str) -> None:
    names = Names("mail.plant.example")
    async with open_centre(store_url, SystemClock()) as centre:
        adapter = EmailAdapter(outbound=Outbound(resolve=names.resolve))
        channels = ChannelActions(centre.store, {"email": adapter}, centre.clock, centre.keyring)
        await channels.add(ADMIN, "mail", "email", MAIL)
        names.known.clear()
        changed = await channels.change(ADMIN, "mail", {"port": 2525}, 1)
        assert changed.settings["port"] == 2525
        await adapter.close()

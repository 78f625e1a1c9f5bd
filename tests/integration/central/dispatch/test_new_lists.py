"""A list may be younger than what the dispatcher last saw."""

import pytest

from fieldpost.core.notification import Status
from support.centre import Centre


async def test_list_added_since_the_last_refresh_is_delivered_to(centre: Centre) -> None:
    await centre.add_channel()
    dispatcher = centre.dispatcher()
    async with dispatcher.running():
        await dispatcher.sweep()
        await centre.add_list("ops")
        sent_id = await centre.send("ops")
        await dispatcher.sweep()
        await dispatcher.idle()
    assert (await centre.get(sent_id)).status is Status.DELIVERED


@pytest.mark.bad_input(1)
@pytest.mark.parametrize("look_first", [True, False])
async def test_notification_for_a_missing_list_parks_naming_it(centre: Centre, look_first: bool) -> None:
    await centre.add_channel()
    dispatcher = centre.dispatcher()
    async with dispatcher.running():
        if look_first:
            await dispatcher.sweep()
        sent_id = await centre.send("nobody")
        await dispatcher.sweep()
        await dispatcher.idle()
    found = await centre.get(sent_id)
    assert (found.status, found.last_error) == (Status.PARKED, "there is no list named 'nobody'")

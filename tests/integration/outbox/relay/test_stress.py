"""Fifty writers and three relays, one of which is killed every second: the short form of tests/chaos/test_outbox.py."""

from pathlib import Path

import pytest

from support.outbox_apps import Relaying
from support.outbox_ordeal import check, endure


@pytest.mark.req("EVT-20")
@pytest.mark.dec("DEC-01", "DEC-30", "DEC-54")
async def test_every_committed_event_is_one_event_at_central_and_no_other_is(
    relaying: Relaying, tmp_path: Path
) -> None:
    await check(relaying, await endure(relaying, tmp_path, 4.0))

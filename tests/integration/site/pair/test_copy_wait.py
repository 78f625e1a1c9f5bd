"""`[pair] …_wait_ms`: a caller that waits for the copy on the other node, and never longer."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fieldpost.core.errors import InvalidInput
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.pair import pair_state, replication
from fieldpost.site.buffer.pair.copy_wait import wait_for_copy
from fieldpost.site.config.folder import read_folder
from fieldpost.site.config.options import PairOptions
from support.pair_buffers import NodeBuffer, pair_buffers
from support.site_folders import make_site


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[NodeBuffer]:
    with pair_buffers(tmp_path) as (first, _):
        yield first


def confirm(node: NodeBuffer) -> None:
    """The acknowledgement of the other node, as the agent stores it."""
    node.buffer.write(pair_state.set_acked, node.buffer.read(replication.position))


@pytest.mark.req("REP-03")
@pytest.mark.req("DEC-40")
@pytest.mark.parametrize("kind", ["message", "call"])
def test_caller_waits_for_the_copy_and_at_most_for_the_limit(leader: NodeBuffer, kind: str) -> None:
    row_id = leader.send() if kind == "message" else leader.issue().message_id
    began = time.monotonic()
    assert not wait_for_copy(leader.buffer, kind, row_id, 100, time.monotonic)  # type: ignore[arg-type]
    assert time.monotonic() - began >= 0.1
    confirming = threading.Thread(target=confirm, args=(leader,))
    confirming.start()
    assert wait_for_copy(leader.buffer, kind, row_id, 60_000, time.monotonic)  # type: ignore[arg-type]
    confirming.join()


def test_single_site_does_not_wait(tmp_path: Path) -> None:
    make_site(tmp_path / "site").close()
    settings = tmp_path / "site" / "site.toml"
    settings.write_text(settings.read_text() + "\n[pair]\nnotification_wait_ms = 200\n")
    folder = read_folder(tmp_path / "site")
    assert folder.pair.notification_wait_ms == 200
    buffer = Buffer(folder.buffer_path)
    assert wait_for_copy(buffer, "message", "any", 60_000, time.monotonic)
    buffer.close()


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"notification_wait_ms": 201}, "notification_wait_ms"),
        ({"external_call_wait_ms": -1}, "external_call_wait_ms"),
        ({"listen": "0.0.0.0:8027"}, "listen"),
        ({"listen": ":8027"}, "listen"),
        ({"peer": "10.0.0.1"}, "peer"),
        ({"peer": "10.0.0.1:0"}, "peer"),
        ({"peer": 7}, "peer"),
        ({"policy": "maybe"}, "policy"),
    ],
)
def test_settings_out_of_range_are_refused(given: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        PairOptions(**given)  # type: ignore[arg-type]
    assert caught.value.field == field

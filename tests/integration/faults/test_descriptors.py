"""A central whose process has no free file descriptor."""

import errno
import os
import resource
import socket
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.running_central import RunningCentral, call

CLIENTS = 50


@pytest.mark.fault(78)
@pytest.mark.threat(28)
async def test_central_without_free_descriptors_pauses_accepting_keeps_its_store_and_recovers(tmp_path: Path) -> None:
    async with RunningCentral(f"sqlite:///{tmp_path / 'central.db'}", tmp_path / "central") as central:
        admin = (central.folder / "api-token").read_text().strip()
        pid = central.pid
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        address = urlsplit(central.url)
        with ExitStack() as stack:
            used = [int(name) for name in os.listdir(f"/proc/{pid}/fd")]
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (max(used) + 1, hard))
            for _ in range(CLIENTS):
                client = stack.enter_context(socket.socket())
                client.setblocking(False)
                assert client.connect_ex((address.hostname, address.port)) in (0, errno.EINPROGRESS)
            # The kernel completes the connections; central does not take them.
            (refused,) = await central.until_logged("connection.refused")
            assert refused["code"] == f"accept.{errno.EMFILE}"
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        added = await call(central, admin, "POST", "sites", {"name": "plant-7"})
        assert added["token"], "accepting goes on, and the store works"
        assert len(central.events("connection.refused")) == 1
        assert [event for event in central.events() if "exception" in event] == []

"""300 hostile connections of every kind for 30 s, on both stores, with and without TLS."""

import ssl
import sys
from pathlib import Path

import pytest
import trustme

from support.hostile import running_target, withstand
from support.hostile_peers import KINDS, SILENT
from support.running_central import RunningCentral

COUNT = 300


@pytest.mark.timeout(300)
@pytest.mark.threat(28, 29)
@pytest.mark.skipif(sys.platform != "linux", reason="needs many loopback addresses and /proc")
@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("addresses", [1, COUNT], ids=["one address", "many addresses"])
@pytest.mark.parametrize("kind", [*KINDS, SILENT])
async def test_probes_are_answered_for_half_a_minute(
    empty_store_url: str, tmp_path: Path, kind: str, addresses: int, has_tls: bool
) -> None:
    if kind == SILENT and not has_tls:
        pytest.skip("without TLS a silent connection is an idle one")
    trusting, environment = None, {}
    if has_tls:
        authority = trustme.CA()
        path = tmp_path / "central.pem"
        path.write_bytes(authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes())
        trusting = ssl.create_default_context()
        authority.configure_trust(trusting)
        environment["FIELDPOST_FRONT__TLS_CERT"] = str(path)
    async with RunningCentral(empty_store_url, tmp_path / "central", environment=environment) as central:
        target = await running_target(central, trusting)
        await withstand(target, kind, COUNT, addresses=addresses, seconds=30)
        assert not central.surprises()

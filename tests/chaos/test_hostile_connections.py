"""300 hostile connections of every kind for 30 s, on both stores, with and without TLS."""

import ssl
import sys
from pathlib import Path

import pytest
import trustme

from fieldpost.front.options import FrontOptions
from fieldpost.testing import ManualClock
from support.front import open_front
from support.hostile import KINDS, SILENT, target_of, withstand
from support.line import without_bugs

COUNT = 300
MIB = 1024 * 1024


@pytest.mark.timeout(300)
@pytest.mark.threat(28, 29)
@pytest.mark.skipif(sys.platform != "linux", reason="needs many loopback addresses and /proc")
@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("addresses", [1, COUNT], ids=["one address", "many addresses"])
@pytest.mark.parametrize("kind", [*KINDS, SILENT])
async def test_probes_are_answered_for_half_a_minute(
    store_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, addresses: int, has_tls: bool
) -> None:
    if kind == SILENT and not has_tls:
        pytest.skip("without TLS a silent connection is an idle one")
    trusting, options = None, FrontOptions()
    if has_tls:
        authority = trustme.CA()
        path = tmp_path / "central.pem"
        path.write_bytes(authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes())
        trusting, options = ssl.create_default_context(), FrontOptions(tls_cert=str(path))
        authority.configure_trust(trusting)
    # With TLS both ends of every connection are in this process.
    grown_max = 100 * MIB if has_tls else 50 * MIB
    with without_bugs(caplog):
        async with open_front(store_url, ManualClock()) as front, target_of(front, options, trusting) as target:
            await withstand(target, kind, COUNT, addresses=addresses, seconds=30, grown_max=grown_max)

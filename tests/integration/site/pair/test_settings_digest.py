"""What `site doctor` compares between the two nodes: definitions, secret files, versions and clocks."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

import fieldpost
from fieldpost.core.times import to_text
from fieldpost.link.pair_messages import PairHello
from fieldpost.link.pair_rows import StreamPosition
from fieldpost.site.pair.settings_digest import differences, settings_digests
from support.site_pair import make_node

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
ERP = """
[external.erp]
url = "https://erp.example"
timeout_s = 5
secret_headers = { Authorization = "erp.secret" }
"""
HELLO = PairHello(
    protocol=1,
    version=fieldpost.__version__,
    site="plant-7",
    node=1,
    incarnation="a" * 32,
    held=1,
    known=2,
    received=StreamPosition(),
    sent_at=to_text(NOW),
)


def digests(folder: Path, node: int, secret: str | None = "s3cret", settings: str = ERP) -> dict[str, str]:
    made = make_node(folder, node, more=settings)
    if secret is not None:
        file = folder / "erp.secret"
        file.write_text(secret)
        file.chmod(0o600)
    return settings_digests(made.folder, "shared")


def test_equal_nodes_differ_in_nothing(tmp_path: Path) -> None:
    own, other = digests(tmp_path / "a", 0), digests(tmp_path / "b", 1)
    assert set(own) == {"external.erp", "secret erp.secret"}
    assert differences(own, msgspec.structs.replace(HELLO, digests=other), NOW) == ()


@pytest.mark.parametrize(
    ("secret", "settings", "named"),
    [
        ("other", ERP, "secret erp.secret"),
        (None, ERP, "secret erp.secret"),
        ("s3cret", ERP.replace("timeout_s = 5", "timeout_s = 6"), "external.erp"),
        ("s3cret", ERP + '[external.mes]\nurl = "https://mes.example"\ntimeout_s = 5\n', "external.mes"),
    ],
)
def test_different_definition_or_secret_is_named(tmp_path: Path, secret: str | None, settings: str, named: str) -> None:
    own, other = digests(tmp_path / "a", 0), digests(tmp_path / "b", 1, secret, settings)
    assert differences(own, msgspec.structs.replace(HELLO, digests=other), NOW) == (named,)
    assert not any("s3cret" in digest for digest in own.values())


def test_other_version_and_clock_are_named() -> None:
    hello = msgspec.structs.replace(HELLO, version="99.0", sent_at=to_text(NOW + timedelta(seconds=6)))
    assert differences({}, hello, NOW) == ("version", "clock")
    assert differences({}, msgspec.structs.replace(HELLO, sent_at=to_text(NOW - timedelta(seconds=4))), NOW) == ()

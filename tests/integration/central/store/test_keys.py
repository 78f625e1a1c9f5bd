"""Where a node's keys come from: made once, given by file or environment, and never a reason not to start."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fieldpost.central.secrets.key_files import SecretsOptions, known_keys, load_keyring, make_key_file
from fieldpost.central.secrets.keyring import Keyring, key_text
from support.centre import Centre

KEY = key_text(b"k" * 32)


async def load(centre: Centre, folder: Path, **options: str) -> Keyring:
    return await load_keyring(centre.store, SecretsOptions(**options), folder, centre.clock.now())


@pytest.mark.threat(24)
async def test_first_start_creates_a_private_key_file(centre: Centre, tmp_path: Path) -> None:
    ring = await load(centre, tmp_path)
    file = tmp_path / "secret.key"
    assert file.stat().st_mode & 0o777 == 0o600
    assert (len(ring.key_ids), ring.problem) == (1, None)
    assert (await load(centre, tmp_path)).key_ids == ring.key_ids
    assert await centre.store.read(known_keys) == set(ring.key_ids)


@pytest.mark.fault(67)
async def test_missing_key_is_not_replaced(centre: Centre, tmp_path: Path) -> None:
    await load(centre, tmp_path)
    (tmp_path / "secret.key").unlink()
    with capture_logs() as lines:
        ring = await load(centre, tmp_path)
    assert not (tmp_path / "secret.key").exists()
    assert ring.key_ids == ()
    assert "there is no key file" in (ring.problem or "")
    assert [line["event"] for line in lines] == ["secrets.no_key"]


async def test_second_node_does_not_create_another_key(centre: Centre, tmp_path: Path) -> None:
    await load(centre, tmp_path / "one")
    second = await load(centre, tmp_path / "two")
    assert second.key_ids == ()


async def test_environment_has_precedence_over_the_file(centre: Centre, tmp_path: Path) -> None:
    ring = await load(centre, tmp_path, key=KEY)
    assert len(ring.key_ids) == 1
    assert not (tmp_path / "secret.key").exists()
    assert KEY not in repr(SecretsOptions(key=KEY))


@pytest.mark.fault(67)
@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff\xfe", b"x" * 100_000])
async def test_key_file_without_a_key_leaves_the_node_without_one(
    centre: Centre, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "mine.key").write_bytes(content)
    ring = await load(centre, tmp_path, key_file=str(tmp_path / "mine.key"))
    assert ring.key_ids == ()
    assert "mine.key" in (ring.problem or "")


@pytest.mark.threat(24)
async def test_key_file_readable_by_others_is_reported(centre: Centre, tmp_path: Path) -> None:
    file = tmp_path / "secret.key"
    file.write_text(KEY)
    file.chmod(0o644)
    with capture_logs() as lines:
        ring = await load(centre, tmp_path)
    assert len(ring.key_ids) == 1
    assert "0600" in (ring.problem or "")
    assert [line["event"] for line in lines] == ["secrets.key_exposed"]


async def test_a_new_key_goes_first_and_the_old_ones_stay(centre: Centre, tmp_path: Path) -> None:
    before = await load(centre, tmp_path)
    make_key_file(tmp_path / "secret.key")
    after = await load(centre, tmp_path)
    assert (len(after.key_ids), after.key_ids[1:]) == (2, before.key_ids)
    assert (tmp_path / "secret.key").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "secret.key.new").exists()

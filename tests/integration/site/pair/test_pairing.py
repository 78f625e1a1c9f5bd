"""Making and ending a pair: the exchange of certificates by a one-time code, over real sockets."""

import asyncio
import shutil
from pathlib import Path

import pytest

from fieldpost.core.errors import ConfigError, Conflict, Denied, FieldpostError, InvalidInput
from fieldpost.site.buffer.pair import pair_state
from fieldpost.site.config.folder import read_folder
from fieldpost.site.pair import pairing
from fieldpost.site.pair.enrolment import PairInvitation
from fieldpost.site.pair.pair_files import PairFiles
from support.site_pair import CLOCK, SiteNode, inviting, join, make_node, make_pair

COPIES = "SELECT message_id FROM copies ORDER BY number"
OWN = "SELECT message_id FROM messages WHERE message_id <> '' ORDER BY sequence"


@pytest.fixture
def nodes(tmp_path: Path) -> tuple[SiteNode, SiteNode]:
    return make_node(tmp_path / "a", 0), make_node(tmp_path / "b", 1)


async def joined(node: SiteNode, line: str) -> FieldpostError:
    """The refusal of a join."""
    with pytest.raises(FieldpostError) as caught:
        await join(node, line)
    return caught.value


@pytest.mark.req("REP-04")
async def test_second_node_takes_the_first_copy_and_hands_over_its_own(nodes: tuple[SiteNode, SiteNode]) -> None:
    first, second = nodes
    sent = [first.send() for _ in range(3)]
    own = second.send()
    await make_pair(first, second)
    assert [row for (row,) in second.rows(COPIES)] == sent
    assert [row for (row,) in first.rows(COPIES)] == [own]
    assert (first.folder.pair.peer, second.folder.pair.peer) == (second.listen, first.listen)
    for node in nodes:
        assert PairFiles(node.path).key.stat().st_mode & 0o077 == 0
        assert node.held() == node.node


@pytest.mark.threat(21)
async def test_wrong_code_site_or_node_is_refused_and_changes_nothing(
    nodes: tuple[SiteNode, SiteNode], tmp_path: Path
) -> None:
    first, second = nodes
    async with inviting(first) as (line, waiting):
        code, _, place = line.partition("@")
        assert (await joined(second, f"{code[:-1]}0@{place}")).code == "pair.code"
        fingerprint = place.rpartition("/")[2]
        assert (await joined(second, line.replace(fingerprint, "0" * 64))).code == "pair.stranger"
        same = make_node(tmp_path / "c", 0)
        assert (await joined(same, line)).code == "pair.same_node"
        other = make_node(tmp_path / "d", 1)
        settings = other.path / "site.toml"
        settings.write_text(settings.read_text().replace("plant-7", "plant-8"))
        assert (await joined(other, line)).code == "pair.other_site"
        assert not PairFiles(first.path).is_paired
        assert not PairFiles(second.path).is_paired
        assert not waiting.done()
        await join(second, line)
        await waiting
    assert code.encode() not in _content(tmp_path)


def _content(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


async def test_third_node_is_refused(nodes: tuple[SiteNode, SiteNode], tmp_path: Path) -> None:
    await make_pair(*nodes)
    with pytest.raises(Conflict, match="already belongs to a pair"):
        async with inviting(nodes[0]):
            pass
    third = make_node(tmp_path / "c", 1)
    async with inviting(third) as (line, _):
        assert (await joined(nodes[1], line)).code == "pair.exists"


@pytest.mark.parametrize(
    "line", ["", "fp_pair_a_b", "fp_join_a_b@h:1/" + "0" * 64, "fp_pair_a_b@h/" + "0" * 64, "fp_pair_a_b@h:1/xyz"]
)
def test_anything_else_than_the_line_is_refused(line: str) -> None:
    with pytest.raises(InvalidInput):
        PairInvitation.parse(line)


async def test_missing_openssl_is_an_error_with_a_remedy(
    nodes: tuple[SiteNode, SiteNode], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="openssl") as caught:
        async with inviting(nodes[0]):
            pass
    assert "node.key" in (caught.value.hint or "")
    monkeypatch.undo()
    await make_pair(*nodes)


async def test_node_that_leaves_hands_over_and_the_other_is_a_single_site(
    nodes: tuple[SiteNode, SiteNode],
) -> None:
    first, second = nodes
    await make_pair(first, second)
    own = second.send()
    with first.opened() as buffer, second.opened() as leaving:
        staying = asyncio.create_task(_serve(first, buffer))
        await pairing.leave(second.folder, leaving, CLOCK)
        await asyncio.wait_for(staying, 30)
    assert own in [row for (row,) in first.rows(OWN)]
    for node in nodes:
        assert node.rows("SELECT count(*) FROM facts WHERE name GLOB 'pair_*'") == [(0,)]
        assert not PairFiles(node.path).is_paired
        assert "[pair]" not in (node.path / "site.toml").read_text()
    assert pairing.set_aside(second.folder, CLOCK.now()) in {file.name for file in second.path.iterdir()}


async def _serve(node: SiteNode, buffer: "pairing.Buffer") -> None:
    """The other node's agent, until its peer has left."""
    from fieldpost.site.config.options import parse_address
    from fieldpost.site.pair.leadership import Leadership
    from fieldpost.site.pair.peer import PairListener
    from fieldpost.site.pair.session import PairSession

    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    leadership = Leadership(buffer, CLOCK.monotonic, 1)

    def end() -> None:
        pairing.become_single(node.folder, buffer, CLOCK.now())
        loop.call_soon_threadsafe(ended.set)

    listener = PairListener(
        PairFiles(node.path).identity(),
        lambda: PairSession(buffer, node.folder.name, CLOCK.now, leadership, on_leave=end),
        CLOCK,
    )
    await listener.start(*parse_address(node.listen, "listen"))
    await ended.wait()
    await asyncio.sleep(0.3)
    await listener.close()


async def test_node_whose_peer_is_gone_continues_alone_with_its_copies(nodes: tuple[SiteNode, SiteNode]) -> None:
    first, second = nodes
    sent = first.send()
    await make_pair(first, second)
    with second.opened() as buffer:
        pairing.leave_alone(second.folder, buffer, "machine stolen", CLOCK.now())
    assert [row for (row,) in second.rows(OWN)] == [sent]
    [(text,)] = second.rows("SELECT text FROM events WHERE kind = 'pair_switched'")
    assert "machine stolen" in str(text)
    with second.opened() as buffer, pytest.raises(Conflict, match="no pair"):
        await pairing.leave(second.folder, buffer, CLOCK)


async def test_machine_is_replaced_by_a_new_one(nodes: tuple[SiteNode, SiteNode], tmp_path: Path) -> None:
    first, second = nodes
    await make_pair(first, second)
    lost = second.send()
    # The copy of the lost machine's notification, as its agent would have sent it.
    await _exchange(first, second)
    shutil.rmtree(second.path)
    fresh = make_node(tmp_path / "c", 1)
    early = fresh.send()
    kept = first.send()
    async with inviting(first, replaces=True) as (line, waiting):
        await join(fresh, line)
        await waiting
    assert {row for (row,) in first.rows(OWN)} == {lost, kept}
    assert {row for (row,) in fresh.rows(COPIES)} == {lost, kept}
    assert [row for (row,) in first.rows(COPIES)] == [early]
    assert read_folder(first.path).pair.peer == fresh.listen


async def _exchange(first: SiteNode, second: SiteNode) -> None:
    """Both nodes get all changes of each other."""
    with first.opened() as one, second.opened() as other:
        work = [
            pairing._exchange(first.folder, PairFiles(first.path), one, CLOCK, listen=first.listen),
            pairing._exchange(second.folder, PairFiles(second.path), other, CLOCK, peer=first.listen),
        ]
        async with asyncio.timeout(60):
            await asyncio.gather(*work)


async def test_new_buffer_of_a_node_gets_everything_again(nodes: tuple[SiteNode, SiteNode]) -> None:
    first, second = nodes
    sent = [first.send() for _ in range(3)]
    await make_pair(first, second)
    incarnation = PairFiles(second.path).shared_incarnation()
    for file in second.path.glob("buffer.db*"):
        file.unlink()
    with second.opened() as buffer:
        buffer.write(pair_state.create, 1, incarnation)
    own = second.send()
    await _exchange(first, second)
    assert [row for (row,) in second.rows(COPIES)] == sent
    assert [row for (row,) in first.rows(COPIES)] == [own]


async def test_denied_join_names_the_reason(nodes: tuple[SiteNode, SiteNode]) -> None:
    async with inviting(nodes[0]) as (line, _):
        error = await joined(nodes[1], line.replace("fp_pair_", "fp_pair_x", 1))
    assert isinstance(error, Denied)
    assert "code" in error.message

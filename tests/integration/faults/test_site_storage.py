"""A site's disk: the process killed at any write, the power cut, a sync that fails."""

from itertools import count
from pathlib import Path

import pytest

from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.connection import connect
from support.disks import PowerDisk
from support.site_writers import KEYED, STUBBORN, SUBMIT, add, ids_in, start
from support.storage_ordeals import cut_the_power_of_a_site
from support.strace import strace_with

PAYLOAD = '{"body": "' + "x" * 5000 + '"}'


@pytest.mark.fault(2)
@pytest.mark.req("DEC-02", "DEC-24")
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync"])
def test_script_killed_at_any_write_leaves_a_complete_message_or_none(tmp_path: Path, call: str) -> None:
    """The n-th write of a process that opens the buffer, submits one message and closes it is its last, for each n."""
    path = tmp_path / "buffer.db"
    buffer = Buffer(path)
    before = add(buffer, "{}")
    buffer.close()
    is_there_after_a_kill = set()
    for number in count(1):
        strace = strace_with("-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={number}")
        process = start(SUBMIT, path, PAYLOAD, before=strace)
        returned, _ = process.communicate()
        found = take_out(path)
        assert found.pop(before) == "{}"
        assert list(found.values()) in ([], [PAYLOAD]), "what is there is there whole"
        if returned:
            assert list(found) == [returned], "an id that was returned stands for a message"
        if process.returncode == 0:
            break
        is_there_after_a_kill.add(bool(found))
    assert is_there_after_a_kill == {False, True}, "some kills came before the message was on disk, some after"


def take_out(path: Path) -> dict[str, str]:
    """What is in the buffer, with its payloads; all but the first is then removed."""
    connection = connect(path)
    assert connection.pragma("integrity_check") == "ok"
    rows = connection.execute("SELECT message_id, payload FROM messages").fetchall()
    connection.execute("DELETE FROM messages WHERE sequence > 1")
    connection.close()
    return {str(message_id): str(payload) for message_id, payload in rows}


@pytest.mark.fault(3)
@pytest.mark.req("DEC-01", "DEC-02")
def test_power_cut_loses_nothing_confirmed(tmp_path: Path) -> None:
    with PowerDisk(tmp_path) as disk:
        assert cut_the_power_of_a_site(disk) > 50


@pytest.mark.fault(5)
def test_after_a_sync_that_failed_nothing_is_confirmed_on_the_same_connection(tmp_path: Path) -> None:
    """Seen from outside: whatever is confirmed after the failure, the file was opened anew before."""
    path, trace = tmp_path / "buffer.db", tmp_path / "trace"
    Buffer(path).close()
    watched = ("-s", "64", "-o", str(trace), "-e", "trace=openat,fdatasync,write")
    strace = strace_with(*watched, "-e", "inject=fdatasync:error=EIO:when=4")
    lines = start(STUBBORN, path, before=strace).communicate()[0].split()
    assert lines.count("buffer.io") == 1
    failed = lines.index("buffer.io")
    assert 0 < failed < 19
    calls = trace.read_text().splitlines()
    failure = next(number for number, call in enumerate(calls) if "INJECTED" in call)
    confirmed = next(n for n, call in enumerate(calls) if n > failure and f'write(1, "{lines[failed + 1]}' in call)
    assert any(f'"{path}"' in call for call in calls[failure:confirmed] if "openat" in call)
    assert ids_in(path) >= {line for line in lines if line != "buffer.io"}


@pytest.mark.fault(5)
def test_nothing_is_confirmed_after_the_disk_stops_syncing(tmp_path: Path) -> None:
    path = tmp_path / "buffer.db"
    Buffer(path).close()
    strace = strace_with("-o", "/dev/null", "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=4+")
    lines = start(STUBBORN, path, before=strace).communicate()[0].split()
    failed = lines.index("buffer.io")
    assert set(lines[failed:]) == {"buffer.io"}
    assert ids_in(path) >= set(lines[:failed])


@pytest.mark.fault(5)
@pytest.mark.parametrize("until", [3, 5, 9])
def test_unconfirmed_message_that_is_sent_again_with_its_key_is_in_the_buffer_once(tmp_path: Path, until: int) -> None:
    """The log may keep a message whose sync failed, and a later process reads it there."""
    path = tmp_path / "buffer.db"
    Buffer(path).close()
    strace = strace_with(
        "-o", "/dev/null", "-e", "trace=fdatasync", "-e", f"inject=fdatasync:error=EIO:when=3..{until}"
    )
    *failures, confirmed = start(KEYED, path, before=strace).communicate()[0].split()
    assert set(failures) == {"buffer.io"}
    assert ids_in(path) == {confirmed}

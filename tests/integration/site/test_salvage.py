"""A damaged buffer: told as such, set aside whole, and everything that can be read of it kept."""

import os
import shutil
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fieldpost.core.checks import CheckVerdict
from fieldpost.core.errors import NotFound, Unavailable
from fieldpost.site.buffer.buffer import Buffer
from fieldpost.site.buffer.connection import connect, salvage_mark
from fieldpost.site.buffer.file_pages import Pages
from fieldpost.site.repair.btrees import INDEX_LEAF, TABLE_LEAF, Trees
from fieldpost.site.repair.consistency import make_consistent
from fieldpost.site.repair.damage import damage_of_log, refuse_damaged
from fieldpost.site.repair.doctor import examine
from fieldpost.site.repair.rebuild import TABLES
from fieldpost.site.repair.salvage import salvage
from fieldpost.site.repair.transfer import MessageLine, RejectedLine, TrackingLine
from support.commands_of_site import fieldpost
from support.site_folders import make_site
from support.site_writers import add, start
from support.strace import strace_with

NOW = datetime(2026, 11, 15, 8, 0, tzinfo=UTC)
PAGE = 4096
LEFT_BEHIND = """
import os, sys
from pathlib import Path
from fieldpost.site.buffer.buffer import Buffer
from support.site_writers import add
buffer = Buffer(Path(sys.argv[1]))
for number in range(int(sys.argv[2])):
    print(add(buffer, '{"text": "%s"}' % ("x" * 300 * (number % 40))))
sys.stdout.flush()
os.kill(os.getpid(), 9)
"""
PERSISTENT = """
import os, sys, threading
from pathlib import Path
from fieldpost.core.errors import Unavailable
from fieldpost.site.buffer.buffer import Buffer
from support.site_writers import add
buffer = Buffer(Path(sys.argv[1]))
def work():
    while True:
        try:
            os.write(1, add(buffer).encode() + b"\\n")
        except Unavailable as error:
            assert error.code == "buffer.salvaging", error
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
work()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "buffer.db"


def killed_writer(path: Path, count: int) -> list[str]:
    """What a process sent that was killed before its log could be moved into the file."""
    output, _ = start(LEFT_BEHIND, path, count).communicate()
    assert log_of(path).stat().st_size > 0
    return output.split()


def log_of(path: Path) -> Path:
    return path.with_name("buffer.db-wal")


def payloads(path: Path) -> dict[str, str]:
    connection = connect(path)
    try:
        assert connection.pragma("integrity_check") == "ok"
        return {str(i): str(p) for i, p in connection.execute("SELECT message_id, payload FROM messages")}
    finally:
        connection.close()


def overwrite(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


@pytest.mark.fault(8)
def test_loss_of_any_page_keeps_or_names_every_message(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    buffer = Buffer(whole)
    sent = {add(buffer, text): text for text in (f'{{"text": "{"é" * 150 * (n % 30)}"}}' for n in range(60))}
    buffer.close()
    page_count = whole.stat().st_size // PAGE
    assert page_count > 40
    outcomes = set()
    for number in range(1, page_count + 1):
        folder = tmp_path / f"page-{number}"
        folder.mkdir()
        path = folder / "buffer.db"
        shutil.copy(whole, path)
        overwrite(path, (number - 1) * PAGE, b"\xa5" * PAGE)
        damaged = path.read_bytes()
        done = salvage(path, NOW)
        kept = payloads(path)
        assert set(kept) | set(done.lost_ids) == set(sent), f"page {number}"
        assert all(kept[message_id] == sent[message_id] for message_id in kept)
        assert done.kept["messages"] == len(kept)
        assert done.is_whole is False or not done.lost_ids
        assert done.set_aside.read_bytes() == damaged, "what was set aside is as it was"
        assert len(done.lost_ids) <= 40, "one page holds no more than so many"
        outcomes.add(bool(done.lost_ids))
    assert outcomes == {False, True}, "some pages hold messages, and some do not"


@pytest.mark.fault(8)
def test_damaged_buffer_is_rejected_with_the_command_to_run_and_not_changed(tmp_path: Path) -> None:
    site = make_site(tmp_path / "site")
    for _ in range(40):
        site.notify.to("ops").send("s", "b" * 900)
    site.close()
    path = tmp_path / "site" / "buffer.db"
    overwrite(path, leaf_of_messages(path) * PAGE - PAGE, b"\xa5" * PAGE)
    damaged = path.read_bytes()
    with pytest.raises(Unavailable) as caught:
        refuse_damaged(path)
    assert caught.value.code == "buffer.corrupt"
    started = fieldpost("site", "--folder", tmp_path / "site")
    assert started.returncode == 7
    assert b"buffer.corrupt" in started.stderr
    assert b"fieldpost site salvage" in started.stderr
    assert path.read_bytes() == damaged
    told = fieldpost("site", "doctor", "--folder", tmp_path / "site")
    assert told.returncode == 9
    assert b"fieldpost site salvage" in told.stdout


def leaf_of_messages(path: Path) -> int:
    """A page that holds rows of messages and nothing else."""
    pages = Pages(path, log_of(path))
    try:
        roots = {row.values[1]: row.values[3] for row in Trees(pages).rows(1)}
        walk = Trees(pages)
        assert len(list(walk.rows(roots["messages"]))) > 1
        return next(page for page in walk.seen if (pages.page(page) or b"")[0] == TABLE_LEAF)
    finally:
        pages.close()


@pytest.mark.fault(8)
def test_salvage_reports_kept_and_lost_messages(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    site = make_site(folder)
    sent = [site.notify.to("ops").send("s", "b" * 900) for _ in range(40)]
    site.close()
    path = folder / "buffer.db"
    overwrite(path, leaf_of_messages(path) * PAGE - PAGE, b"\xa5" * PAGE)
    told = fieldpost("site", "salvage", "--folder", folder)
    kept = payloads(path)
    assert told.returncode == 9
    assert f"{len(kept)} messages" in told.stdout.decode()
    assert 0 < len(kept) < len(sent)
    for lost in set(sent) - set(kept):
        assert f"lost {lost}" in told.stdout.decode()
    assert fieldpost("site", "doctor", "--folder", folder).returncode == 0
    events = connect(path).execute("SELECT kind, text FROM events").fetchall()
    assert [(kind, f"{len(sent) - len(kept)} messages lost" in str(text)) for kind, text in events] == [
        ("salvaged", True)
    ]


@pytest.mark.fault(8)
def test_truncated_log_is_rejected_and_its_intact_part_kept(path: Path) -> None:
    sent = killed_writer(path, 60)
    os.truncate(log_of(path), log_of(path).stat().st_size * 2 // 3)
    with pytest.raises(Unavailable) as caught:
        refuse_damaged(path)
    assert caught.value.code == "buffer.corrupt"
    assert "is truncated" in caught.value.message
    assert check("log", path) is CheckVerdict.FAILING
    done = salvage(path, NOW)
    kept = payloads(path)
    assert list(kept) == sent[: len(kept)], "all that was committed before the cut"
    assert len(kept) > 20
    assert done.kept["messages"] == len(kept)


@pytest.mark.fault(8)
def test_commits_after_a_damaged_part_of_the_log_are_kept_too(path: Path) -> None:
    sent = killed_writer(path, 60)
    # Somewhere in the middle, in a page image; SQLite would see nothing from here on, and write over it.
    overwrite(log_of(path), 32 + (24 + PAGE) * 40 + 24 + 100, b"\xa5" * 64)
    assert check("log", path) is CheckVerdict.FAILING
    with pytest.raises(Unavailable):
        refuse_damaged(path)
    salvage(path, NOW)
    assert len(set(sent) - set(payloads(path))) <= 1


@pytest.mark.fault(8)
def test_log_with_a_damaged_header_is_never_mistaken_for_an_empty_one(path: Path) -> None:
    sent = killed_writer(path, 30)
    overwrite(log_of(path), 8, b"\xa5\xa5")
    with pytest.raises(Unavailable) as caught:
        Buffer(path)
    assert caught.value.code == "buffer.corrupt"
    salvage(path, NOW)
    assert set(payloads(path)) == set(sent)


@pytest.mark.fault(8)
@pytest.mark.parametrize("is_removed", [False, True])
def test_emptied_or_lost_buffer_is_rejected_and_its_log_not_changed(tmp_path: Path, is_removed: bool) -> None:
    """SQLite takes it for a new one, and removes the log with all that scripts were told is on disk."""
    folder = tmp_path / "site"
    make_site(folder).close()
    path = folder / "buffer.db"
    killed_writer(path, 12)
    log = log_of(path).read_bytes()
    if is_removed:
        path.unlink()
    else:
        os.truncate(path, 0)
    said = "the file is missing, but its write-ahead log exists" if is_removed else "the file is empty"
    for refused in (lambda: Buffer(path), lambda: refuse_damaged(path) or Buffer(path)):
        with pytest.raises(Unavailable, match=said) as caught:
            refused()
        assert caught.value.code == "buffer.corrupt"
    assert check("buffer", path) is CheckVerdict.FAILING
    assert b"buffer.corrupt" in fieldpost("site", "--folder", folder).stderr
    assert log_of(path).read_bytes() == log
    assert path.exists() is not is_removed


@pytest.mark.fault(8)
@pytest.mark.parametrize("is_removed", [False, True])
def test_log_of_an_emptied_or_lost_buffer_is_salvaged(path: Path, is_removed: bool) -> None:
    sent = killed_writer(path, 60)
    log = log_of(path).read_bytes()
    if is_removed:
        path.unlink()
    else:
        os.truncate(path, 0)
    done = salvage(path, NOW)
    assert set(payloads(path)) == set(sent)
    assert path.stat().st_mode & 0o777 == 0o600
    assert done.set_aside.with_name(done.set_aside.name + "-wal").read_bytes() == log


@pytest.mark.fault(8)
def test_emptied_buffer_without_a_log_is_rejected_too(path: Path) -> None:
    buffer = Buffer(path)
    add(buffer)
    buffer.close()
    assert not log_of(path).exists()
    os.truncate(path, 0)
    for look in (lambda: Buffer(path), lambda: refuse_damaged(path)):
        with pytest.raises(Unavailable, match="the file is empty"):
            look()
    assert check("buffer", path) is CheckVerdict.FAILING


@pytest.mark.parametrize(
    ("calls", "number"), [("pwrite64", 3), ("fsync", 1), ("link,linkat", 1), ("unlink,unlinkat", 1)]
)
def test_process_killed_while_creating_the_buffer_leaves_none_or_a_complete_one(
    path: Path, calls: str, number: int
) -> None:
    strace = strace_with("-o", "/dev/null", "-e", f"trace={calls}", "-e", f"inject={calls}:signal=KILL:when={number}")
    program = "import sys, pathlib; from fieldpost.site.buffer.buffer import Buffer; Buffer(pathlib.Path(sys.argv[1]))"
    assert start(program, path, before=strace).wait() != 0
    buffer = Buffer(path)
    assert buffer.find(add(buffer)) is not None
    buffer.close()


def test_unsynced_log_is_not_damage(path: Path) -> None:
    sent = killed_writer(path, 3)
    Buffer(path).close()
    log_of(path).write_bytes(bytes(PAGE))
    refuse_damaged(path)
    assert set(payloads(path)) == set(sent)


def test_log_in_use_is_not_mistaken_for_damaged(path: Path) -> None:
    """It never is whole at the moment of a look; whoever opened it has had SQLite read it through."""
    killed_writer(path, 60)
    overwrite(log_of(path), 32 + (24 + PAGE) * 40 + 24 + 100, b"\xa5" * 64)
    program = """
import sys
from pathlib import Path
from fieldpost.site.buffer.file_pages import is_in_use
print(is_in_use(Path(sys.argv[1])))
"""
    index = path.with_name("buffer.db-shm")
    assert start(program, index).communicate()[0] == "False\n"
    assert damage_of_log(log_of(path)) is not None
    holder = connect(path)
    holder.execute("SELECT 1 FROM messages").fetchall()
    # Asked by another process: this one would drop its own lock by looking.
    assert start(program, index).communicate()[0] == "True\n"
    holder.close()


@pytest.mark.fault(8)
def test_doctor_finds_an_index_that_differs_from_its_table(path: Path) -> None:
    """Nothing that only counts would meet it."""
    buffer = Buffer(path)
    sent = [add(buffer) for _ in range(3)]
    buffer.close()
    content = path.read_bytes()
    places = [place for place in range(len(content)) if content.startswith(sent[1].encode(), place)]
    [in_index] = [place for place in places if content[place // PAGE * PAGE] == INDEX_LEAF]
    assert check("buffer", path) is CheckVerdict.OK
    overwrite(path, in_index, sent[1].encode()[:-1] + b"x")
    assert check("buffer", path) is CheckVerdict.FAILING
    assert check("buffer", path, is_quick=True) is CheckVerdict.OK, "which is what a quick look leaves out"


def check(name: str, path: Path, *, is_quick: bool = False) -> CheckVerdict:
    diagnosis = examine(path.parent, NOW, is_quick=is_quick).diagnosis
    return next(one.verdict for one in diagnosis.checks if one.name == name)


@pytest.mark.fault(8)
def test_a_script_that_writes_during_a_salvage_loses_nothing(path: Path) -> None:
    buffer = Buffer(path)
    confirmed = [add(buffer)]
    buffer.close()
    writer = start(PERSISTENT, path)
    heard = threading.Condition()

    def listen() -> None:
        assert writer.stdout is not None
        for line in writer.stdout:
            with heard:
                confirmed.append(line.strip())
                heard.notify_all()

    listener = threading.Thread(target=listen)
    listener.start()
    asides = []
    for round_number in range(3):
        with heard:
            before = len(confirmed)
            assert heard.wait_for(lambda until=before + 50: len(confirmed) > until, 30)
        program = "import sys; from pathlib import Path; from datetime import datetime, UTC; " + (
            "from fieldpost.site.repair.salvage import salvage; "
            f"print(salvage(Path(sys.argv[1]), datetime(2026, 11, {15 + round_number}, tzinfo=UTC)).set_aside)"
        )
        salvaged = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
        assert salvaged.returncode == 0, salvaged.stderr
        asides.append(salvaged.stdout)
    writer.kill()
    writer.wait()
    listener.join()
    whole = {line for line in confirmed if len(line) == 36}
    assert len(set(asides)) == 3
    assert set(payloads(path)) >= whole


@pytest.mark.fault(8)
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_interrupted_salvage_blocks_access_and_continues_when_run_again(path: Path, number: int) -> None:
    """Killed at each change of a name in turn: log, index, file aside, and the fresh one into place."""
    sent = killed_writer(path, 12)
    program = (
        "import sys; from pathlib import Path; from datetime import datetime, UTC; "
        "from fieldpost.site.repair.salvage import salvage; salvage(Path(sys.argv[1]), datetime.now(UTC))"
    )
    calls = "rename,renameat,renameat2"
    strace = strace_with("-o", "/dev/null", "-e", f"trace={calls}", "-e", f"inject={calls}:signal=KILL:when={number}")
    assert start(program, path, before=strace).wait() != 0
    assert salvage_mark(path).exists()
    with pytest.raises(Unavailable) as caught:
        Buffer(path)
    assert caught.value.code == "buffer.salvaging"
    done = salvage(path, NOW)
    assert set(payloads(path)) == set(sent)
    assert done.set_aside.exists()
    assert not salvage_mark(path).exists()
    assert len(list(path.parent.glob("buffer.db.damaged-*Z"))) == 1


def test_salvage_and_export_cover_every_table_and_column(path: Path) -> None:
    """Whoever adds one decides here what becomes of it when a buffer is salvaged or exported."""
    connection = connect(path)
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert tables - {"sqlite_sequence"} == set(TABLES)
    left_out = {
        "messages": {"sequence", "due_at"},
        "calls": {"sequence", "due_at", "claimed_by", "claim_token", "claimed_until"},
        "tracking": {"change_sequence"},
        "rejected": set(),
    }
    kinds = {"messages": MessageLine, "calls": MessageLine, "tracking": TrackingLine, "rejected": RejectedLine}
    for table, kind in kinds.items():
        columns = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        assert columns == set(kind.__struct_fields__) | left_out[table], table
    connection.close()


def test_salvage_without_a_buffer_reports_it(path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        salvage(path, NOW)
    assert caught.value.code == "buffer.none"
    assert list(path.parent.iterdir()) == []


TRACKED = """
INSERT INTO calls (message_id, category, target, payload, status, created_at)
VALUES (:id, 'external_call', 'erp', '{}', :status, 0)
"""
RECORD = """
INSERT INTO tracking (call_id, category, target_summary, status, last_error, created_at, updated_at, terminal_at,
    change_sequence)
VALUES (:id, 'external_call', 'erp POST /orders', :status, :error, 0, 0, :end, :change)
"""


def test_messages_and_records_agree_after_an_import(path: Path) -> None:
    connection = connect(path)
    connection.execute(TRACKED, {"id": "without-record", "status": "parked"})
    connection.execute(TRACKED, {"id": "ended", "status": "pending"})
    connection.execute(TRACKED, {"id": "lives", "status": "retrying"})
    connection.execute(RECORD, {"id": "ended", "status": "delivered", "error": None, "end": 1, "change": 7})
    connection.execute(RECORD, {"id": "lives", "status": "retrying", "error": None, "end": None, "change": 8})
    connection.execute(RECORD, {"id": "lost", "status": "pending", "error": None, "end": None, "change": 9})
    make_consistent(connection.cursor(), NOW)
    messages = {row[0] for row in connection.execute("SELECT message_id FROM calls")}
    rows = connection.execute("SELECT call_id, status, change_sequence FROM tracking").fetchall()
    fact = connection.execute("SELECT value FROM facts WHERE name = 'change_sequence'").fetchall()
    connection.close()
    assert messages == {"without-record", "lives"}
    assert {call_id: rest for call_id, *rest in rows} == {
        "ended": ["delivered", 7],
        "lives": ["retrying", 8],
        "without-record": ["parked", 10],
        "lost": ["failed", 11],
    }
    assert fact == [(11,)]

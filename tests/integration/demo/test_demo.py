"""`fieldpost demo` as a person runs it: started, stopped by Ctrl-C, started again, and treated badly."""

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.running_demo import ANY_PORTS, DEADLINE_S, RunningDemo, mail_ids, processes_of

pytestmark = pytest.mark.timeout(300)  # two demos one after the other are in the first test's time
INBOX = r"Inbox +(http://\S+)"
LOGIN = r"Console +http://\S+ +log in as (\S+), password (\S+)"


@dataclass
class Run:
    """What was seen of one run until Ctrl-C."""

    login: tuple[str, ...]
    mail_ids: set[str]
    running: list[str]
    exit_code: int
    left: list[str]
    lines: list[str]
    happened: object
    """What came of what was done to it meanwhile."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "fieldpost-demo"


@pytest.fixture(scope="module")
def two_runs(folder: Path, project: Path) -> tuple[Run, Run]:
    """The first meets a second demo in its folder; the second finds a port taken, and its central is killed."""
    first = run_and_stop(folder, lambda demo: refused_beside(folder))
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # if somebody else has it, that is as good
            taken.bind(("127.0.0.1", 2525))
            taken.listen()
        usual = ("--port", "0", "--inbox-port", "0")
        return first, run_and_stop(folder, lambda demo: killed_central(demo, folder, project), *usual)


def run_and_stop(folder: Path, meanwhile: Callable[[RunningDemo], object], *arguments: str) -> Run:
    with RunningDemo(folder, *arguments) as demo:
        login = demo.until(LOGIN).groups()
        inbox_url = demo.until(INBOX)[1]
        demo.until(r"harbour +delivered")
        running = processes_of(demo.mark)
        happened = meanwhile(demo)
        ids = mail_ids(inbox_url)
        code = demo.stop()
        return Run(login, ids, running, code, processes_of(demo.mark), demo.lines, happened)


def refused_beside(folder: Path) -> tuple[int, str]:
    """The exit code and the words of a second demo in the same folder."""
    with RunningDemo(folder) as second:
        return second.wait(), "".join(second.lines)


def killed_central(demo: RunningDemo, folder: Path, project: Path) -> str:
    """The id of what the example script sent while central was away, once it has arrived."""
    os.kill(int((folder / "central/central.db.lock").read_text()), signal.SIGKILL)
    script = subprocess.run(
        [sys.executable, str(project / "examples/site_script.py")],
        cwd=folder.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    demo.until("central was killed by SIGKILL")
    demo.until("plant-north +delivered +Pump 3 → ops")
    return script.stdout.strip()


def test_central_agents_and_scripts_are_separate_processes(two_runs: tuple[Run, Run]) -> None:
    for words in ("central", "agent plant-north", "agent harbour", "script plant-north", "script harbour"):
        assert any(f"fieldpost.demo.child {words}" in command for command in two_runs[0].running), words


def test_ctrl_c_ends_the_demo_with_0_and_leaves_no_process(two_runs: tuple[Run, Run]) -> None:
    assert [run.exit_code for run in two_runs] == [0, 0]
    assert [run.left for run in two_runs] == [[], []]


def test_the_application_publishes_under_its_own_name_in_each_run(two_runs: tuple[Run, Run]) -> None:
    for run in two_runs:
        output = "".join(run.lines)
        assert "app:planner  delivered  work-orders → wall-display" in output
        assert set(re.findall(r"\bapp:[\w -]*?(?= +(?:sent|delivered|retrying) )", output)) == {"app:planner"}


def test_second_start_keeps_the_mails(two_runs: tuple[Run, Run]) -> None:
    first, second = two_runs
    assert first.mail_ids
    assert first.mail_ids < second.mail_ids
    assert any("Continuing with" in line for line in second.lines)


def test_second_demo_in_the_same_folder_is_rejected(two_runs: tuple[Run, Run]) -> None:
    code, said = two_runs[0].happened
    assert (code, "another demo is running in" in said) == (1, True)


def test_occupied_default_port_is_replaced_with_a_message(two_runs: tuple[Run, Run]) -> None:
    assert re.search(r"Port 2525 is in use; the mail catcher uses port \d+", "".join(two_runs[1].lines))


def test_notifications_sent_while_central_is_down_arrive_afterwards(two_runs: tuple[Run, Run]) -> None:
    assert two_runs[1].happened in two_runs[1].mail_ids


def test_a_second_start_shows_the_same_login(two_runs: tuple[Run, Run]) -> None:
    assert two_runs[0].login == two_runs[1].login


def test_secrets_are_readable_by_their_owner_only(two_runs: tuple[Run, Run], folder: Path) -> None:
    secret = ["login.json", "central/api-token", "plant-north/token", "harbour/token"]
    assert {name: oct((folder / name).stat().st_mode & 0o777) for name in secret} == dict.fromkeys(secret, "0o600")


def test_without_a_terminal_the_output_holds_no_control_characters(two_runs: tuple[Run, Run]) -> None:
    assert [line for line in two_runs[0].lines if not line.rstrip("\n").isprintable()] == []


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[RunningDemo]:
    with RunningDemo(tmp_path / "fieldpost-demo") as started:
        yield started


def test_processes_of_a_killed_demo_end(demo: RunningDemo, tmp_path: Path) -> None:
    demo.until("delivered")
    assert demo.stop(signal.SIGKILL) == -signal.SIGKILL
    # They hold the demo's lock with it, so it is free only when the last of them is gone.
    with (tmp_path / "fieldpost-demo/demo.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    assert processes_of(demo.mark) == []


def test_demo_stops_in_order_if_its_output_is_closed(demo: RunningDemo) -> None:
    demo.until("Inbox")
    demo.stop_reading()
    assert demo.process.wait(DEADLINE_S) == 0
    assert processes_of(demo.mark) == []


@pytest.mark.parametrize("option", ["--port", "--inbox-port", "--smtp-port"])
def test_occupied_requested_port_ends_the_demo(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        arguments = [*ANY_PORTS, option, str(taken.getsockname()[1])]
        with RunningDemo(tmp_path / "data", *arguments) as demo:
            assert demo.wait() == 1
    assert re.search(r"cannot listen on .*port \d+: the port is in use by pid \d+ ", "".join(demo.lines))
    assert processes_of(demo.mark) == []

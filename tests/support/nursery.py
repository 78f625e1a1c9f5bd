"""Processes of Fieldpost that begin with everything imported: forked from one that has imported it all before.

`fieldpost central` works for a second until it serves, nearly all of it in imports, and the tests start it more than a
hundred times. A forked one is a process like any other, with an environment, a folder, streams and an end of its own.
Only what comes before `main()` differs, and other tests see to that.

The nursery is a child of the test's process. It is sent, as one packet, what to run and the streams to run it on, and
tells of each birth and each end. When the test's process is gone, however that ended, it ends and all its children do.
"""

import asyncio
import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

PACKET_BYTES = 1 << 20
BIRTH_S = 60.0
DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG"""
SERVE = "import sys; sys.path.append(sys.argv[3]); from support.nursery import serve; serve(*map(int, sys.argv[1:3]))"


def can_fork() -> bool:
    """Whether a process that is left alone dies with its parent; else nobody would end it."""
    return sys.platform == "linux"


async def start(arguments: list[str], environment: Mapping[str, str], folder: Path, log: BinaryIO) -> "Forked":
    """Run `fieldpost` with these arguments; its stderr goes into the log, its stdout can be read."""
    return await asyncio.to_thread(_nursery().bear, arguments, dict(environment), folder, log)


class Forked:
    """A process as `asyncio.subprocess.Process` is one, as far as tests need it."""

    def __init__(self, pid: int, ended: "Future[int]", stdout: int) -> None:
        self.pid = pid
        self._ended = ended
        self._stdout = os.fdopen(stdout, "rb", 0)

    @property
    def returncode(self) -> int | None:
        return self._ended.result() if self._ended.done() else None

    async def read_stdout(self) -> asyncio.StreamReader:
        """Once."""
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self._stdout)
        return reader

    async def wait(self) -> int:
        return await asyncio.shield(asyncio.wrap_future(self._ended))

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)


class Nursery:
    """The test's side. Births come one after another; ends may come at any time, and are noted by a thread."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        tests = str(Path(__file__).resolve().parent.parent)
        with theirs:
            subprocess.Popen(
                [sys.executable, "-P", "-c", SERVE, str(theirs.fileno()), str(os.getpid()), tests],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        self._socket = ours
        self._birth: Future[int] = Future()
        self._ends: dict[int, Future[int]] = {}
        self._one_at_a_time = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def bear(self, arguments: list[str], environment: dict[str, str], folder: Path, log: BinaryIO) -> Forked:
        order = {"arguments": arguments, "environment": environment, "folder": str(folder)}
        reading, writing = os.pipe()
        try:
            with self._one_at_a_time:
                self._birth = Future()
                socket.send_fds(self._socket, [json.dumps(order).encode()], [writing, log.fileno()])
                pid = self._birth.result(BIRTH_S)
        finally:
            os.close(writing)
        return Forked(pid, self._ends[pid], reading)

    def _listen(self) -> None:
        while told := self._socket.recv(PACKET_BYTES):
            match json.loads(told):
                case {"born": pid}:
                    self._ends[pid] = Future()
                    self._birth.set_result(pid)
                case {"ended": pid, "code": code}:
                    self._ends[pid].set_result(code)
        if not self._birth.done():
            self._birth.set_exception(ConnectionError("the nursery has gone"))


@cache
def _nursery() -> Nursery:
    return Nursery()


def serve(number: int, parent: int) -> None:
    """Run by the nursery's process; a forked one leaves by `main()`, and so by the interpreter's own end."""
    die_with_parent(parent)
    _import_all()
    own_pid = os.getpid()
    with socket.socket(fileno=number) as orders:
        woken, waking = os.pipe()
        os.set_blocking(waking, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waking)
        while True:
            ready, _, _ = select.select([orders, woken], [], [])
            if woken in ready:
                os.read(woken, 4096)
                _tell_ends(orders)
            if orders in ready:
                packet, streams, _, _ = socket.recv_fds(orders, PACKET_BYTES, 2)
                if not packet:
                    return
                if (pid := os.fork()) == 0:
                    die_with_parent(own_pid)
                    break
                orders.send(json.dumps({"born": pid}).encode())
                for stream in streams:
                    os.close(stream)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for stream in (woken, waking):
            os.close(stream)
    _live(json.loads(packet), streams)


def _import_all() -> None:
    for name in (
        "fieldpost.run.central",
        "fieldpost.run.site",
        "fieldpost.run.effective_settings",
        "fieldpost.run.relay",
        "fieldpost.cli.local.site",
    ):
        import_module(name)
    gc.freeze()


def _tell_ends(orders: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        orders.send(json.dumps({"ended": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


def _live(order: dict[str, Any], streams: list[int]) -> None:
    from fieldpost.cli.main import main

    for stream, number in zip(streams, (1, 2), strict=True):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    sys.argv = ["fieldpost", *order["arguments"]]
    main()


def die_with_parent(parent: int) -> None:
    """However the parent ends, and even while this process is paused. The kernel sends no signal for a parent that
    ended before the request, so check for that afterwards."""
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)

"""Name resolution while name servers are silent. A lookup that hangs is a function that blocks its thread."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from structlog.testing import capture_logs

from fieldpost.outbound import resolver
from fieldpost.outbound.guard import AddressGuard, Blocked
from fieldpost.outbound.resolver import LookupTimeout, SystemResolver, look_up
from fieldpost.testing import ManualClock


class NameServer:
    """Answers every name except those that begin with `silent`, which block until `answer`."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self._is_answering = threading.Event()

    def __call__(self, name: str) -> Sequence[str]:
        self.asked[name] += 1
        if name.startswith("silent"):
            assert self._is_answering.wait(60)
        if name.startswith("unknown"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return ["192.0.2.1"]

    def answer(self) -> None:
        self._is_answering.set()


@pytest.fixture
def names() -> Iterator[NameServer]:
    names = NameServer()
    yield names
    names.answer()


async def test_silent_names_delay_no_other_name(names: NameServer) -> None:
    """200 of 1,000 are silent and are looked up first; no deadline passes while the others are resolved."""
    resolve = SystemResolver(60, look_up=names)
    silent = [asyncio.ensure_future(resolve(f"silent{number}.example", 443)) for number in range(200)]
    others = [asyncio.ensure_future(resolve(f"name{number}.example", 443)) for number in range(800)]
    async with asyncio.timeout(30):
        assert await asyncio.gather(*others) == [["192.0.2.1"]] * 800
    assert not any(task.done() for task in silent)
    names.answer()
    async with asyncio.timeout(30):
        await asyncio.gather(*silent)


async def test_concurrent_callers_share_one_lookup(names: NameServer) -> None:
    resolve = SystemResolver(60, look_up=names)
    callers = [asyncio.ensure_future(resolve(host, 443)) for host in ("silent.example", "Silent.Example") * 25]
    await asyncio.sleep(0)
    callers[0].cancel()
    names.answer()
    found = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == [["192.0.2.1"]] * 49
    assert names.asked == {"silent.example": 1}


async def test_lookup_past_its_deadline_fails_all_callers_and_later_ones_at_once(names: NameServer) -> None:
    resolve = SystemResolver(0.2, look_up=names)
    with capture_logs() as lines:
        failures = await asyncio.gather(*(resolve("silent.example", 443) for _ in range(3)), return_exceptions=True)
    assert [type(failure) for failure in failures] == [LookupTimeout] * 3
    assert len(set(map(id, failures))) == 3
    assert "silent.example was not resolved within 0.2 s: the name server did not answer" in str(failures[0])
    assert [(line["event"], line["host"]) for line in lines] == [("lookup.timed_out", "silent.example")]
    async with asyncio.timeout(0.1):
        with pytest.raises(LookupTimeout):
            await resolve("silent.example", 443)
    assert names.asked == {"silent.example": 1}


async def test_late_answer_is_used(names: NameServer) -> None:
    resolve = SystemResolver(0.2, look_up=names)
    with pytest.raises(LookupTimeout):
        await resolve("silent.example", 443)
    names.answer()
    async with asyncio.timeout(30):
        while True:
            try:
                assert await resolve("silent.example", 443) == ["192.0.2.1"]
                break
            except LookupTimeout:
                await asyncio.sleep(0.01)
    assert names.asked == {"silent.example": 1}


async def test_silent_names_do_not_use_up_lookups_of_others(names: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "HUNG_MAX", 2)
    monkeypatch.setattr(resolver, "LOOKUPS_MAX", 1)
    resolve = SystemResolver(0.5, look_up=names)
    now = resolve._clock.monotonic()
    resolve._suspects.update((f"silent{number}.example", now + 60) for number in range(20))
    suspects = [asyncio.ensure_future(resolve(f"silent{number}.example", 443)) for number in range(20)]
    assert await resolve("name.example", 443) == ["192.0.2.1"]
    failures = await asyncio.gather(*suspects, return_exceptions=True)
    assert {type(failure) for failure in failures} == {LookupTimeout}
    assert sum("too many other lookups" in str(failure) for failure in failures) == 18
    assert sum(names.asked[f"silent{number}.example"] for number in range(20)) == 2


async def test_slow_failing_name_is_suspect_until_it_is_answered() -> None:
    """The system may give up before our deadline."""
    answers: list[Sequence[str]] = [[], ["192.0.2.1"]]

    def slow(name: str) -> Sequence[str]:
        if found := answers.pop(0):
            return found
        threading.Event().wait(resolver.LONG_S * 2)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    resolve = SystemResolver(60, look_up=slow)
    with pytest.raises(socket.gaierror, match="Temporary failure"):
        await resolve("slow.example", 443)
    assert list(resolve._suspects) == ["slow.example"]
    assert await resolve("slow.example", 443) == ["192.0.2.1"]
    assert not resolve._suspects


async def test_number_of_threads_is_limited(names: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "HUNG_MAX", 3)
    monkeypatch.setattr(resolver, "LOOKUPS_MAX", 2)
    monkeypatch.setattr(resolver, "LONG_S", 0.01)
    resolve = SystemResolver(0.5, look_up=names)
    await asyncio.gather(*(resolve(f"silent{number}.example", 443) for number in range(20)), return_exceptions=True)
    assert len(names.asked) == 5
    assert sum(thread.name == "lookup" for thread in threading.enumerate()) >= 5


async def test_answer_is_cached_for_a_few_seconds_and_a_failure_is_not(names: NameServer) -> None:
    clock = ManualClock()
    resolve = SystemResolver(look_up=names, clock=clock)
    for _ in range(3):
        await resolve("name.example", 443)
        with pytest.raises(socket.gaierror, match="not known"):
            await resolve("unknown.example", 443)
    assert names.asked == {"name.example": 1, "unknown.example": 3}
    clock.advance(resolver.CACHE_S)
    await resolve("name.example", 443)
    assert names.asked["name.example"] == 2


async def test_number_of_cached_answers_is_limited(names: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "NAMES_MAX", 10)
    resolve = SystemResolver(look_up=names)
    for number in range(20):
        await resolve(f"name{number}.example", 443)
    assert list(resolve._answers) == [f"name{number}.example" for number in range(10, 20)]


async def test_cached_address_is_checked_again_each_time(names: NameServer) -> None:
    guard = AddressGuard("strict", None, SystemResolver(look_up=names))
    for _ in range(2):
        with pytest.raises(Blocked, match="for documentation"):
            await guard.addresses("name.example", 443)
    assert names.asked == {"name.example": 1}


async def test_unexpected_error_of_a_lookup_fails_its_callers() -> None:
    def broken(name: str) -> Sequence[str]:
        raise KeyError(name)

    with pytest.raises(OSError, match="name resolution failed: KeyError"):
        await SystemResolver(look_up=broken)("name.example", 443)


@pytest.mark.parametrize("name", ["a" * 64 + ".example", "a..b", "nul\0.example"])
def test_invalid_name_does_not_exist(name: str) -> None:
    with pytest.raises(socket.gaierror) as caught:
        look_up(name)
    assert caught.value.errno == socket.EAI_NONAME


def test_system_resolves_the_name_of_this_machine() -> None:
    assert {"127.0.0.1", "::1"} & set(look_up("localhost"))


def test_process_ends_although_a_lookup_hangs() -> None:
    code = """
import asyncio, time
from fieldpost.outbound.resolver import LookupTimeout, SystemResolver

async def main():
    try:
        await SystemResolver(0.1, look_up=lambda name: time.sleep(600))("silent.example", 443)
    except LookupTimeout as error:
        print("timed out")

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "timed out" in done.stdout
    assert "Traceback" not in done.stderr

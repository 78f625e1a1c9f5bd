"""The entropy of ids: kept for many at a time, given once."""

import os
from concurrent.futures import ThreadPoolExecutor

from fieldpost.site.entropy import ENTROPY_BYTES, entropy


def test_no_two_threads_get_the_same() -> None:
    with ThreadPoolExecutor(8) as pool:
        drawn = [piece for part in pool.map(lambda _: [entropy() for _ in range(1_000)], range(8)) for piece in part]
    assert len(set(drawn)) == len(drawn) == 8_000
    assert {len(piece) for piece in drawn} == {ENTROPY_BYTES}


def test_a_forked_child_draws_its_own() -> None:
    entropy()
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        os.write(writing, b"".join(entropy() for _ in range(100)))
        os._exit(0)
    mine = {entropy() for _ in range(300)}
    os.waitpid(pid, 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        drawn = file.read()
    theirs = {drawn[at : at + ENTROPY_BYTES] for at in range(0, len(drawn), ENTROPY_BYTES)}
    assert len(theirs) == 100
    assert not mine & theirs

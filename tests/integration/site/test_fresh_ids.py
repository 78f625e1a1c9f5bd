"""Fresh ids: their entropy is drawn for many at a time and used once."""

import os
from concurrent.futures import ThreadPoolExecutor

from fieldpost.core.ids import is_id
from fieldpost.site.buffer.fresh_ids import fresh_id

NOW = 1_794_729_600_000


def test_threads_get_different_ids() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = [one for part in pool.map(lambda _: [fresh_id(NOW) for _ in range(1_000)], range(8)) for one in part]
    assert len(set(made)) == len(made) == 8_000
    assert all(is_id(one) for one in made)


def test_forked_child_generates_its_own_ids() -> None:
    fresh_id(NOW)
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        os.write(writing, " ".join(fresh_id(NOW) for _ in range(100)).encode())
        os._exit(0)
    mine = {fresh_id(NOW) for _ in range(300)}
    os.waitpid(pid, 0)
    os.close(writing)
    with os.fdopen(reading) as file:
        theirs = set(file.read().split())
    assert len(theirs) == 100
    assert not mine & theirs

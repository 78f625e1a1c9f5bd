"""Random lives of notifications on both stores, held against a model after every act.

`make chaos` walks further: tests/chaos/test_life.py. A failure prints the steps that lead to it, each as a call.
"""

from copy import copy
from functools import partial

import pytest
from sqlalchemy import text

from fieldpost.central.store.notifications import finishing_sqlite
from fieldpost.core.delivery.outcome import Uncertain
from fieldpost.core.notification import Target, TargetStatus
from support.databases import apart
from support.life import Life
from support.life_machine import walk
from support.life_world import World


@pytest.mark.req("LIF-06", "LIF-08", "LIF-09", "LIF-10", "AUD-01", "AUD-02", "AUD-03")
@pytest.mark.req("DEC-03", "DEC-05", "DEC-06", "DEC-07", "DEC-10", "DEC-11", "DEC-12", "DEC-14")
def test_every_random_run_agrees_with_the_model(store_url: str) -> None:
    apart(partial(walk, store_url, lives=40, steps=25))


@pytest.mark.req("DEC-10")
def test_unanswered_attempt_that_reached_all_targets_is_delivered_even_if_uncertain_ones_park(
    store_url: str,
) -> None:
    def live() -> None:
        with World(store_url) as world:
            life = Life(world)
            sent = life.submit("it")
            life.claim_all("a")
            (flight,) = life.flights["a"]
            life.finish("a", [(flight, Uncertain("no answer", (Target("d@example.org", TargetStatus.DELIVERED),)))])
            assert life.rows[sent].status == "delivered"

    apart(live)


@pytest.mark.req("DEC-03")
def test_model_detects_a_result_written_without_its_claim(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the update that ends an attempt, without the token that it was claimed under."""
    careful, condition = finishing_sqlite._write_rows, "and notifications.claim_token = u.claim_token"
    sql = careful._texts["sqlite"].element.text  # type: ignore[attr-defined]
    assert condition in sql
    careless = copy(careful)
    careless._texts = {"sqlite": text(sql.replace(condition, ""))}
    monkeypatch.setattr(finishing_sqlite, "_write_rows", careless)
    with pytest.raises(Exception, match=r"owner is None, should be|audit\.event_id"):
        apart(partial(walk, sqlite_url, lives=200, steps=30, is_shrunk=False))

"""The connection to the database is cut between a COMMIT and its answer, wherever that happens to be."""

import pytest

from support.cluster import Cluster
from support.ordeals import lost_answers


@pytest.mark.fault(29)
@pytest.mark.req("DEC-03")
async def test_a_commit_whose_answer_was_lost_has_no_second_effect(cluster: Cluster) -> None:
    verdict = await lost_answers(cluster, cuts=12)
    assert verdict.is_whole
    assert verdict.duplicates == {}
    assert await cluster.broken_rules() == {}
    again = await cluster.query("select 1 from notifications where retry_count > 0 or status <> 'delivered'")
    assert again == [], "an answer lost between us and the database is no failure of the mail"

"""Parts of `make chaos` that take at most ten minutes each, for continuous integration.

    make chaos              everything
    make chaos PART=3       the third part
    .ci/run                 the part that the commit's hash selects, printed so that it can be repeated

Tests are packed into parts in the order of collection, by the seconds below. A test that takes much longer than that is
reported at the end, so that the number can be corrected; once ten minutes are over, a part starts no further test.
Tests longer than a part run only with all others, by hand; so do those that have not passed often enough yet.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PART_S = 600
SECONDS_DEFAULT = 120
"""For a test that is not listed."""
SECONDS = {
    "test_a_bulk_retry_survives": 60,
    "test_two_thousand_within_the_limits_of_the_providers": 60,
    "test_a_node_whose_machine_has_the_wrong_time": 60,
    "test_a_thousand_rounds_of_retry_and_discard": 200,
    "test_rows_that_two_nodes_retry_discard": 150,
    "test_fifty_thousand_notifications": 150,
    "test_a_hundred_lost_answers": 180,
    "test_two_nodes_drain_twenty_thousand": 150,
    "test_one_of_two_nodes_dies": 150,
    "test_fifty_kills_lose_nothing": 400,
    "test_twenty_pauses_lose_nothing": 400,
    "test_probes_are_answered_for_half_a_minute": 40,
    "test_fifty_kills_of_agent_or_central": 300,
    "test_two_hundred_kills_of_the_agent": 1500,
    "test_many_long_random_runs": 300,
    "test_two_hundred_thousand_rows": 200,
    "test_every_row_arrives_once_over_one_connection": 400,
    "test_site_leaves_a_frozen_node": 60,
    "test_central_with_little_memory": 250,
    "test_every_case_that_the_description_defines": 250,
    "test_every_case_that_the_zgw_document_defines": 120,
    "test_twenty_power_cuts": 60,
    "test_ten_power_cuts": 60,
    "test_acked_notifications_survive_a_standby": 120,
    "test_a_hundred_thousand_due_retries": 250,
    "test_thousand_receivers": 150,
    "test_a_hundred_thousand_due_webhooks": 150,
    "test_two_hundred_deliveries_of_256_kib": 60,
    "test_a_node_stopped_at_fifty_statements": 150,
    "test_old_and_new_nodes": 60,
    "test_a_minute_of_killed_relays": 150,
    "test_random_kills_freezes_and_cuts_of_a_pair": 150,
    "test_flapping_link_lost_uplink": 70,
    "test_both_nodes_alone_act_by_their_policy": 90,
    "test_late_result_of_a_frozen_leader": 90,
    "test_node_that_returns_after_eight_days": 150,
    "test_week_without_central_with_three_failovers": 150,
}
"""About how long a test takes on two cores, by the beginning of its name."""
UNSETTLED: tuple[str, ...] = ()
"""Tests that do not pass reliably yet, by the beginning of their names; CONTRIBUTING must say why."""


@dataclass(frozen=True)
class ChosenPart:
    """The tests of one part."""

    number: int
    count: int
    node_ids: frozenset[str]


def seconds_of(node_id: str) -> int:
    name = _name_of(node_id)
    return next((seconds for start, seconds in SECONDS.items() if name.startswith(start)), SECONDS_DEFAULT)


def _name_of(node_id: str) -> str:
    return node_id.partition("[")[0].rpartition("::")[2]


def parts_of(node_ids: Iterable[str]) -> list[list[str]]:
    """The tests in parts of at most `PART_S` seconds; without those that are longer than that, and unsettled ones."""
    parts: list[list[str]] = []
    left_s = 0
    for node_id in node_ids:
        seconds = seconds_of(node_id)
        if seconds > PART_S or _name_of(node_id).startswith(UNSETTLED):
            continue
        if seconds > left_s:
            parts.append([])
            left_s = PART_S
        parts[-1].append(node_id)
        left_s -= seconds
    return parts


def choose(wanted: str, node_ids: Sequence[str]) -> ChosenPart:
    """The part with this number, or that a commit selects: `commit:1a2b3c`. Raises ValueError for any other text."""
    parts = parts_of(node_ids)
    if found := re.fullmatch(r"commit:([0-9a-f]{7,64})", wanted):
        number = int(found[1], 16) % len(parts) + 1
    elif wanted.isdecimal() and 1 <= int(wanted) <= len(parts):
        number = int(wanted)
    else:
        raise ValueError(f"PART must be a number from 1 to {len(parts)}, got {wanted!r}")
    return ChosenPart(number, len(parts), frozenset(parts[number - 1]))

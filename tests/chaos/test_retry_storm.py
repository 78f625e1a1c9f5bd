"""After an outage of the mail server, a hundred thousand retries are due at once."""

import pytest

from support.cluster import Cluster
from support.memory import MEBIBYTE, peak_resident_bytes
from support.ordeals import LISTS, SLOTS
from support.verdict import deliveries_of

ROWS = 100_000
RESIDENT_MAX = 300 * MEBIBYTE
FILL = """
insert into notifications (notification_id, list_name, subject, body, digest, source_site_id, type, delivery_key,
    status, retry_count, last_error, created_at, last_attempt_at, next_attempt_at, due_at, is_timed, cycle_started_at)
select gen_random_uuid(), name, 'Pump stopped', repeat('No flow. ', 100), '\\x00', 'plant-7', 'email', 'list:' || name,
    'retrying', 3, '421 4.3.2 closing', now() - interval '1 hour', now() - interval '10 minutes', at, at, true,
    now() - interval '1 hour'
from (
    select ($2::text[])[1 + number % cardinality($2::text[])] as name, now() - random() * interval '5 minutes' as at
    from generate_series(1, $1::int) as number
) as rows
"""


@pytest.mark.timeout(1800)
@pytest.mark.needs("linux")
@pytest.mark.fault(55)
async def test_a_hundred_thousand_due_retries_are_delivered_at_the_pace_of_the_slots_in_little_memory(
    cluster: Cluster,
) -> None:
    node = await cluster.start(environment={"FIELDPOST_DISPATCH__LEASE_S": "60"})
    await cluster.furnish(*LISTS)
    await node.stop()
    await cluster.query(FILL, ROWS, LISTS)
    await cluster.query("analyze notifications")

    await node.start()
    claimed_max = 0
    while cluster.mail.mail_count < ROWS // 10:
        (row,) = await cluster.query("select count(*) from notifications where claim_owner is not null")
        claimed_max = max(claimed_max, row["count"])
    await cluster.settle(1500)
    assert peak_resident_bytes(node.pid) <= RESIDENT_MAX
    # A claim takes rows for free slots only, and a batch more is on its way to the next round.
    assert 0 < claimed_max <= 2 * SLOTS
    delivered = [notification_id for notification_id, _ in deliveries_of(cluster.mail.mails)]
    assert (len(delivered), len(set(delivered))) == (ROWS, ROWS)
    assert node.surprises() == []

"""At the end of a shift, order parts in an ERP system and write the piece count to a database.

Both are attempted immediately. A call that cannot succeed now is on this machine's disk, the site's agent retries it,
and the script continues. Only a permanent rejection (an order that the ERP will never accept) is an error here.

    python end_of_shift.py /var/lib/fieldpost
"""

import sys
from datetime import UTC, datetime

from fieldpost import OperationFailed, Site

with Site.open(sys.argv[1]) as site, site.context(instance="press-2", script="end_of_shift"):
    now = datetime.now(UTC)
    # Because of the key, a second run on the same day does not order again.
    order = site.external("erp").call("POST", "/orders", json={"part": "seal", "count": 2}, key=f"seals-{now:%F}")
    count = site.database("plant").write("count", {"unit": "press-2", "pieces": 1170, "counted_at": now.isoformat()})
    for call_id in (order, count):
        record = site.tracking.status(call_id)
        print(record.target_summary, record.status, record.last_error or "")
    try:
        site.external("erp").call("DELETE", "/orders/unheard-of")
    except OperationFailed as error:
        print("refused:", error.http_status, error.message)

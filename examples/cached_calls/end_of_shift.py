"""A script at a site: at the end of a shift it orders parts at an ERP system and writes the count to a database.

Either is tried at once. What cannot be done now is on this machine's disk, and the site's agent tries it again; the
script goes on. Only what is refused for good (an order the ERP will never take) is an error here.

    python end_of_shift.py /var/lib/fieldpost
"""

import sys
from datetime import UTC, datetime

from fieldpost import OperationFailed, Site

with Site.open(sys.argv[1]) as site, site.context(instance="press-2", script="end_of_shift"):
    now = datetime.now(UTC)
    # The key makes a second run of the script on the same day the same order.
    order = site.external("erp").call("POST", "/orders", json={"part": "seal", "count": 2}, key=f"seals-{now:%F}")
    count = site.database("plant").write("count", {"unit": "press-2", "pieces": 1170, "counted_at": now.isoformat()})
    for operation in (order, count):
        record = site.tracking.status(operation)
        print(record.target_summary, record.status, record.last_error or "")
    try:
        site.external("erp").call("DELETE", "/orders/unheard-of")
    except OperationFailed as error:
        print("refused:", error.http_status, error.message)

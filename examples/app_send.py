"""An application that is no site hands a notification in over central's API, with the standard library alone.

    FIELDPOST_URL=http://127.0.0.1:8025 FIELDPOST_TOKEN=fp_api_… python app_send.py order-7 "Order 7 is late"

The key is the application's own name for what happened. Whoever hears no answer sends the same again: central knows the
key and doubles nothing.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request

TRIES = 5


def send(key: str, subject: str) -> str:
    """The notification's id, once central has it on disk."""
    request = urllib.request.Request(
        f"{os.environ['FIELDPOST_URL']}/api/v1/notifications",
        json.dumps({"list_name": "ops", "subject": subject, "body": "See the shop.", "script": "app_send"}).encode(),
        {
            "Authorization": f"Bearer {os.environ['FIELDPOST_TOKEN']}",
            "Content-Type": "application/json",
            "Idempotency-Key": key,
        },
    )
    for trial in range(TRIES):
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return str(json.load(answer)["notification_id"])
        except urllib.error.HTTPError as refused:
            if refused.code not in (429, 500, 502, 503, 504):
                raise SystemExit(f"refused for good: {refused.read().decode()}") from None
            wait_s = float(refused.headers.get("Retry-After", 2**trial))
        except OSError:
            wait_s = 2**trial
        time.sleep(wait_s)
    raise SystemExit("central did not answer; send the same again later")


print(send(*sys.argv[1:3]))

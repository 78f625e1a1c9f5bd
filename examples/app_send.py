"""Send a notification from an application over central's API, with the standard library only.

    FIELDPOST_URL=http://127.0.0.1:8025 FIELDPOST_TOKEN=fp_api_… python app_send.py order-7 "Order 7 is late"

The key identifies the event. Without a response, repeat the request: central recognises the key and creates no
duplicate.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request

TRIES = 5


def send(key: str, subject: str) -> str:
    """Send and return the notification's id, once central has it on disk."""
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
                raise SystemExit(f"rejected: {refused.read().decode()}") from None
            wait_s = float(refused.headers.get("Retry-After", 2**trial))
        except OSError:
            wait_s = 2**trial
        time.sleep(wait_s)
    raise SystemExit("central did not respond; run the same command again later")


print(send(*sys.argv[1:3]))

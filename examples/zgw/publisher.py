"""Publish a notification about a case, on a kanaal that is created if it does not exist.

    python publisher.py https://fieldpost.example.nl/notificaties/api/v1 open-zaak SECRET

If the response is lost, send the same notification again: it is the same event, and nobody gets it twice.
"""

import sys
from datetime import UTC, datetime

from zgw import call

KANAAL = {"naam": "zaken", "documentatieLink": "https://zaken.example.nl/ref/#zaken", "filters": ["zaaktype"]}


def main(api: str, client_id: str, secret: str) -> None:
    if not call(api, client_id, secret, "GET", f"kanaal?naam={KANAAL['naam']}"):
        call(api, client_id, secret, "POST", "kanaal", KANAAL)
    notification = {
        "kanaal": KANAAL["naam"],
        "hoofdObject": "https://zaken.example.nl/api/v1/zaken/7",
        "resource": "status",
        "resourceUrl": "https://zaken.example.nl/api/v1/statussen/21",
        "actie": "create",
        "aanmaakdatum": datetime.now(UTC).isoformat(),
        "kenmerken": {"zaaktype": "https://catalogi.example.nl/api/v1/zaaktypen/3"},
    }
    call(api, client_id, secret, "POST", "notificaties", notification)
    print("published", notification["resourceUrl"])


if __name__ == "__main__":
    main(*sys.argv[1:])

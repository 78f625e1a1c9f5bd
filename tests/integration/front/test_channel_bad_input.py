"""Bad targets, secrets, rates and settings of channels and lists: refused by field and rule, nothing half-written."""

from typing import Any

import pytest

from support.front import Front

HOOK = "https://hooks.example/services/canary-4711"
GOOD: dict[str, dict[str, Any]] = {
    "sms": {"targets": ["+4915112345678"]},
    "telegram": {"targets": ["-1001234567890:7"]},
    "slack": {"targets": ["room"], "secrets": {"room": HOOK}},
    "teams": {"targets": ["room"], "secrets": {"room": HOOK}},
    "pagerduty": {"targets": ["room"], "secrets": {"room": "0" * 32}},
    "apprise": {"targets": ["room"], "secrets": {"room": "jsons://hooks.example/canary-4711"}},
}
NUMBERS = ("015112345678", "+49CALLME", "+1234567890123456", "+", "+４９１５１１２３４５６７")
HOOKS = (
    "http://hooks.example/canary",
    "https://ann:canary@hooks.example/",
    "https://hooks.example/x#canary",
    "https://10.0.0.5/canary",
    "https://169.254.169.254/canary",
    "https://hooks.example/can\nary",
    "https://hooks.example/" + "canary" * 500,
)
APPRISE = (
    "gopher://canary",
    "syslog://canary",
    "file:///etc/canary",
    "jsons://hooks.example/canary,jsons://hooks.example/other",
)


def secret_of(text: str) -> dict[str, Any]:
    return {"secrets": {"room": text}}


BAD: list[tuple[str, dict[str, Any], str]] = [
    *(("sms", {"targets": [number]}, "targets[0]") for number in NUMBERS),
    *(("telegram", {"targets": [chat]}, "targets[0]") for chat in ("12 345", "@a", "-100 7")),
    *((type_, secret_of(url), "secrets.room") for type_ in ("slack", "teams") for url in HOOKS),
    *(("pagerduty", secret_of(key), "secrets.room") for key in ("a" * 31 + "\n", "a" * 16 + "\r\n" + "a" * 14)),
    *(("apprise", secret_of(url), "secrets.room") for url in APPRISE),
    *(("sms", {"rate": rate}, "rate") for rate in ("0/1m", "1/0s", "x")),
    ("sms", {"severity": "high"}, "severity"),
]


@pytest.mark.req("CHN-01", "CHN-03", "CHN-04", "CHN-13")
@pytest.mark.needs("apprise")
async def test_invalid_list_is_rejected_when_added_changed_and_imported_and_nothing_is_written(front: Front) -> None:
    async with front.client("admin") as client:
        for type_, good in GOOD.items():
            added = await client.post("/api/v1/lists", json={"name": type_, "type": type_, **good})
            assert added.status_code == 201, added.text
        before = await stored(front)
        for type_, change, field in BAD:
            body = {"name": "new", "type": type_, **GOOD[type_], **change}
            refused = await client.post("/api/v1/lists", json=body)
            assert (refused.status_code, refused.json()["field"]) == (422, field), refused.text
            also = {"name": "also", "type": "email", "targets": ["a@example.org"]}
            imported = await client.post("/api/v1/import/lists", json={"lists": [also, body]})
            assert imported.status_code == 422, imported.text
            assert field in imported.json()["field"]
            changed = await client.patch(f"/api/v1/lists/{type_}", json={"version": 1, **change})
            assert (changed.status_code, changed.json()["field"]) == (422, field), changed.text
            assert "canary" not in refused.text + imported.text + changed.text
        assert await stored(front) == before


@pytest.mark.req("CHN-03")
async def test_invalid_channel_is_rejected_when_added_and_changed_and_nothing_is_written(front: Front) -> None:
    gateway = {"dialect": "http", "url": "https://127.0.0.1/send?to={number}"}
    bad: list[tuple[dict[str, Any], str]] = [
        *(({"rate": rate}, "rate") for rate in ("0/1m", "1/0s", "x")),
        ({"receipt_wait_s": 0}, "receipt_wait_s"),
        ({"receipt_missing": "lose"}, "receipt_missing"),
        ({"settings": {"url": "https://127.0.0.1/send?to={numbr}"}}, "settings.url"),
        ({"settings": {"body": "{nobody}"}}, "settings.body"),
        ({"settings": {"answers": "OK=fine"}}, "settings.answers"),
        ({"settings": {"url": "http://10.0.0.1/send"}}, "settings.url"),
        ({"settings": {"segments_max": 0}}, "settings.segments_max"),
    ]
    async with front.client("admin") as client:
        added = await client.post("/api/v1/channels", json={"name": "texts", "type": "sms", "settings": gateway})
        assert added.status_code == 201, added.text
        before = await stored(front)
        for change, field in bad:
            settings = {**gateway, **change.get("settings", {})}
            refused = await client.post(
                "/api/v1/channels", json={"name": "new", "type": "sms", **change, "settings": settings}
            )
            assert (refused.status_code, refused.json()["field"]) == (422, field), refused.text
            changed = await client.patch("/api/v1/channels/texts", json={"version": 1, **change})
            assert (changed.status_code, changed.json()["field"]) == (422, field), changed.text
        assert await stored(front) == before


async def stored(front: Front) -> list[list[tuple[object, ...]]]:
    tables = ("lists", "list_targets", "channels", "audit where request_summary <> 'login'")
    return [sorted(await front.centre.rows(f"select * from {table}"), key=str) for table in tables]

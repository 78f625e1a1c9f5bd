"""The console page for each API endpoint, for the coverage report."""

from collections.abc import Collection

from fieldpost.front.console.pages import PAGES

PAGES_OF: dict[str, tuple[str, ...]] = {
    "health_show": ("GET /",),
    "kpis_show": ("GET /", "GET /notifications"),
    "kpis_by_site": ("GET /",),
    "kpis_history": ("GET /",),
    "nodes_show_all": ("GET /",),
    "notifications_page": ("GET /notifications",),
    "notifications_parked_groups": ("GET /parked-groups",),
    "notifications_show": ("GET /notifications/{notification_id}",),
    "notifications_retry": ("POST /notifications/{notification_id}/retry",),
    "notifications_discard": ("POST /notifications/{notification_id}/discard",),
    "bulk_actions_show_all": ("GET /bulk-actions",),
    "bulk_actions_start": ("POST /bulk-actions",),
    "bulk_actions_preview": ("GET /bulk-actions/new",),
    "bulk_actions_show": ("GET /bulk-actions/{action_id}",),
    "bulk_actions_rows": ("GET /bulk-actions/{action_id}",),
    "bulk_actions_cancel": ("POST /bulk-actions/{action_id}/cancel",),
    "lists_show_all": ("GET /lists",),
    "lists_add": ("POST /lists",),
    "lists_show": ("GET /lists/{name:path}",),
    "lists_change": ("POST /lists/{name:path}/change",),
    "lists_remove": ("POST /lists/{name:path}/remove",),
    "lists_export": ("GET /export/lists",),
    "lists_import": ("POST /import/lists/preview", "POST /import/lists"),
    "channels_show_all": ("GET /channels",),
    "channels_add": ("POST /channels",),
    "channels_show": ("GET /channels/{name:path}",),
    "channels_change": ("POST /channels/{name:path}/change",),
    "channels_remove": ("POST /channels/{name:path}/remove",),
    "channels_test": ("POST /channels/{name:path}/test",),
    "breakers_show_all": ("GET /", "GET /channels"),
    "breakers_reset": ("POST /channels/{name:path}/reset",),
    "sites_show_all": ("GET /sites",),
    "sites_add": ("POST /sites",),
    "sites_show": ("GET /sites/{name:path}",),
    "sites_rotate": ("POST /sites/{name:path}/rotate",),
    "sites_revoke": ("POST /sites/{name:path}/revoke",),
    "site_health_show_all": ("GET /", "GET /sites"),
    "site_health_show": ("GET /sites/{name:path}",),
    "site_health_history": ("GET /sites/{name:path}",),
    "cached_calls_page": ("GET /cached-calls",),
    "cached_calls_show": ("GET /cached-calls/{call_id}",),
    "intents_page": ("GET /intents",),
    "intents_create": (
        "POST /cached-calls/request",
        "POST /cached-calls/reconcile",
        "POST /cached-calls/parked",
        "POST /sites/{name:path}/rejected",
        "POST /sites/{name:path}/rejected/decide",
        "POST /sites/{name:path}/events",
    ),
    "intents_show": ("GET /intents/{intent_id}",),
    "intents_cancel": ("POST /intents/{intent_id}/cancel",),
    "audit_page": ("GET /audit",),
    "events_page": ("GET /events",),
    "events_show": ("GET /events/{event_id}",),
    "topics_show_all": ("GET /topics",),
    "topics_show": ("GET /topics/{name}",),
    "topics_save": ("GET /new/topic", "POST /topics", "POST /topics/{name}/change"),
    "topics_archive": ("POST /topics/{name}/archive",),
    "subscriptions_page": ("GET /subscriptions",),
    "subscriptions_unhealthy": ("GET /unhealthy-receivers", "POST /unhealthy-receivers/reset"),
    "subscriptions_show": ("GET /subscriptions/{subscription_id}",),
    "subscriptions_add": ("GET /new/subscription", "POST /subscriptions"),
    "subscriptions_change": ("POST /subscriptions/{subscription_id}/change",),
    "subscriptions_rotate": ("POST /subscriptions/{subscription_id}/rotate",),
    "subscriptions_test": ("POST /subscriptions/{subscription_id}/test",),
    "subscriptions_pause": ("POST /subscriptions/{subscription_id}/{verb}",),
    "subscriptions_resume": ("POST /subscriptions/{subscription_id}/{verb}",),
    "subscriptions_enable": ("POST /subscriptions/{subscription_id}/{verb}",),
    "subscriptions_preview_recovery": ("GET /subscriptions/{subscription_id}/recover",),
    "subscriptions_recover": ("POST /subscriptions/{subscription_id}/recover",),
    "notifications_resend": ("POST /notifications/{notification_id}/resend",),
    "subscriptions_disable": ("POST /subscriptions/{subscription_id}/{verb}",),
    "subscriptions_remove": ("POST /subscriptions/{subscription_id}/{verb}",),
    "audit_export": ("POST /audit/export",),
    "settings_show": ("GET /settings",),
    "users_me": ("GET /account",),
    "users_sessions": ("GET /account", "GET /users/{name}"),
    "users_end_session": ("POST /account/sessions/{session_id}/end",),
    "tokens_show_all": ("GET /tokens",),
    "tokens_add": ("POST /tokens",),
    "tokens_rotate": ("POST /tokens/{token_id}/rotate",),
    "tokens_revoke": ("POST /tokens/{token_id}/revoke",),
    "users_show_all": ("GET /users",),
    "users_add": ("POST /users",),
    "users_show": ("GET /users/{name}",),
    "users_change": ("POST /users/{name}/role", "POST /users/{name}/disable", "POST /users/{name}/enable"),
    "users_remove": ("POST /users/{name}/remove",),
    "users_reset_password": ("POST /users/{name}/reset-password",),
    "users_log_out": ("POST /users/{name}/log-out", "POST /account/log-out-everywhere"),
}
WITHOUT_PAGE = {
    "health_alive": "liveness probe",
    "health_ready": "readiness probe",
    "health_metrics": "for Prometheus",
    "openapi_show": "for programs",
    "submissions_send": "scripts and applications send notifications; a channel is tested on its page",
    "submissions_send_batch": "for programs",
    "events_publish": "applications publish events",
    "audit_verify": "a long check, for the command line and other machines",
    "audit_public_keys": "to keep on another machine",
    "secrets_show": "keys are changed on central's machine",
    "secrets_rotate": "keys are changed on central's machine",
}
OWN = {
    "GET /login": "login",
    "POST /login": "login",
    "GET /login/oidc": "login",
    "GET /login/oidc/callback": "login",
    "GET /set-password": "one-time link",
    "POST /set-password": "one-time link",
    "POST /logout": "logout",
    "POST /account/password": "the user's own password",
    "POST /account/theme": "theme of this browser",
    "GET /live": "change stream for open pages",
}
"""Console pages without an endpoint, with the reason."""


def gaps(endpoints: Collection[str]) -> list[tuple[str, set[str]]]:
    """Endpoints without a page, pages without an endpoint, and stale entries of the tables above."""
    pages = {f"{page.method} {page.path}" for page in PAGES}
    used = {page for names in PAGES_OF.values() for page in names}
    known = {*PAGES_OF, *WITHOUT_PAGE}
    unused = {page for page in pages - used - OWN.keys() if not _is_form(page, pages)}
    return [
        ("Endpoints without a console page", set(endpoints) - known),
        ("Console pages without an endpoint", unused),
        (
            "Stale entries in `tools/reference/console_pages.py`",
            (known - set(endpoints)) | ((used | OWN.keys()) - pages),
        ),
    ]


def _is_form(page: str, pages: Collection[str]) -> bool:
    """Whether the page only shows a form or asks for confirmation."""
    method, path = page.split()
    return method == "GET" and (f"POST {path}" in pages or path.endswith("/confirm") or path.startswith("/new/"))

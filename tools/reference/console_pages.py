"""Which page of the console shows what a verb of the API shows, or does what it does. A hole is an error, not a gap."""

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
    "intents_give": (
        "POST /cached-calls/give",
        "POST /cached-calls/reconcile",
        "POST /cached-calls/parked",
        "POST /sites/{name:path}/rejected",
        "POST /sites/{name:path}/rejected/act",
        "POST /sites/{name:path}/events",
    ),
    "intents_show": ("GET /intents/{intent_id}",),
    "intents_cancel": ("POST /intents/{intent_id}/cancel",),
    "audit_page": ("GET /audit",),
    "audit_export": ("POST /audit/export",),
    "settings_show": ("GET /settings",),
    "users_me": ("GET /account",),
    "users_sessions": ("GET /account", "GET /users/{name}"),
    "users_end_session": ("POST /account/sessions/{session_id}/end",),
    "tokens_show_all": ("GET /tokens",),
    "tokens_add": ("POST /tokens",),
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
    "health_alive": "a probe, for whoever watches the process",
    "health_ready": "a probe, for whoever sends requests to this node",
    "health_metrics": "for Prometheus",
    "openapi_show": "for programs",
    "submissions_send": "notifications come from scripts and applications; a way out is tried on the channel's page",
    "submissions_send_batch": "for programs",
    "secrets_show": "of use beside central's settings only, to whoever changes the key there",
    "secrets_rotate": "of use beside central's settings only, to whoever changes the key there",
}
OWN = {
    "GET /login": "logging in",
    "POST /login": "logging in",
    "GET /login/oidc": "logging in",
    "GET /login/oidc/callback": "logging in",
    "GET /set-password": "a one-time link",
    "POST /set-password": "a one-time link",
    "POST /logout": "logging out",
    "POST /account/password": "one's own password; programs have tokens",
    "POST /account/theme": "how the console looks in this browser",
    "GET /live": "the stream by which open pages hear of changes",
}
"""Pages that are the console's own and stand for no verb, with what they are."""


def check(verbs: Collection[str]) -> None:
    """Raise LookupError naming a verb without a page, or a page without a verb."""
    pages = {f"{page.method} {page.path}" for page in PAGES}
    used = {page for names in PAGES_OF.values() for page in names}
    known = {*PAGES_OF, *WITHOUT_PAGE}
    for what, holes in (
        ("verbs of the API without a page of the console", set(verbs) - known),
        ("verbs that the API does not have", known - set(verbs)),
        ("pages without a verb", {page for page in pages - used - OWN.keys() if not _is_question(page, pages)}),
        ("pages that there are not", (used | OWN.keys()) - pages),
    ):
        if holes:
            raise LookupError(f"{what}: {', '.join(sorted(holes))} (see tools/reference/console_pages.py)")


def _is_question(page: str, pages: Collection[str]) -> bool:
    """Whether it only asks before an act, or holds the form of one."""
    method, path = page.split()
    return method == "GET" and (f"POST {path}" in pages or path.endswith("/ask") or path.startswith("/new/"))

"""The console as one table of pages."""

from fieldpost.central.operate.accounts import LINK_PATH
from fieldpost.central.operate.oidc import CALLBACK_PATH
from fieldpost.front.auth import Access
from fieldpost.front.console import account, notification, oidc, outbox, sessions
from fieldpost.front.console.visit import PageRoute

PAGES = (
    PageRoute("GET", "/login", sessions.login_page, Access.ANYONE),
    PageRoute("POST", "/login", sessions.log_in, Access.ANYONE),
    PageRoute("GET", oidc.PATH, oidc.begin, Access.ANYONE),
    PageRoute("GET", CALLBACK_PATH, oidc.finish, Access.ANYONE),
    PageRoute("GET", LINK_PATH, sessions.link_page, Access.ANYONE),
    PageRoute("POST", LINK_PATH, sessions.use_link, Access.ANYONE),
    PageRoute("POST", "/logout", sessions.log_out, Access.VIEWER),
    PageRoute("GET", "/account", account.page, Access.VIEWER),
    PageRoute("POST", "/account/password", account.change_password, Access.VIEWER),
    PageRoute("POST", "/account/sessions/{session_id}/end", account.end_session, Access.VIEWER),
    PageRoute("POST", "/account/log-out-everywhere", account.log_out_everywhere, Access.VIEWER),
    PageRoute("GET", "/", outbox.page, Access.VIEWER),
    PageRoute("GET", "/notifications/{notification_id}", notification.page, Access.VIEWER),
    PageRoute("POST", "/notifications/{notification_id}/retry", notification.retry, Access.OPERATOR),
    PageRoute("POST", "/notifications/{notification_id}/discard", notification.discard, Access.OPERATOR),
)

STATIC = "/static/{name:path}"
"""Style sheet, scripts and pictures, which the login page needs: for anyone."""

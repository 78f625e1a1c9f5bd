"""A request of a browser: its user, and the responses that pages give."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fieldpost.central.access.logins import BROWSER_S, NewSession, Origin
from fieldpost.central.operate.operate import Operate
from fieldpost.central.watch.issue import Issue, IssueCode
from fieldpost.central.watch.watch import Watch
from fieldpost.core.actor import Actor, Role
from fieldpost.core.errors import Denied, FieldpostError
from fieldpost.front.auth import Access
from fieldpost.front.backend import Backend
from fieldpost.front.console.kit.forms import FORM_BYTES_MAX, form_token, read_fields, read_form
from fieldpost.front.console.kit.render import Renderer
from fieldpost.front.proxies import is_loopback


@dataclass(frozen=True, slots=True)
class SubmittedForm:
    """A rejected form, shown again with the user's input and the errors by field."""

    given: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    status: int = 422

    @classmethod
    def rejected(
        cls, given: Mapping[str, str], error: FieldpostError, *, at: str = "", status: int = 422
    ) -> "SubmittedForm":
        """The form with an error; `at` is the field of an error that names none."""
        return cls(given, {error.field or at: error_text(error)}, status)


EMPTY_FORM = SubmittedForm(status=200)


@dataclass(frozen=True, slots=True)
class PageRequest:
    http: Request
    backend: Backend
    renderer: Renderer
    visitor: Actor | None
    secret: str | None
    """The cookie that CSRF tokens are derived from: of the session, or of the browser before login."""
    menu: "Sequence[MenuLine]" = ()
    issues: Sequence[Issue] = ()
    """The open issues, for the badges of the menu."""
    change_tokens: str = ""
    """The change tokens from before the page was rendered, as the query of the event stream."""

    @property
    def actor(self) -> Actor:
        assert self.visitor is not None, "only pages that require a login use the actor"
        return self.visitor

    @property
    def operate(self) -> Operate:
        return self.backend.operate

    @property
    def watch(self) -> Watch:
        return self.backend.watch

    @property
    def is_live_update(self) -> bool:
        """Whether a live region of an open page requests an update."""
        return self.http.headers.get("hx-request") == "true"

    @property
    def origin(self) -> Origin:
        """Address and browser of the client."""
        client = self.http.client
        browser = self.http.cookies.get(cookie_name(self.http, "browser"), "")
        return Origin(client.host if client else "", self.http.headers.get("user-agent", ""), browser)

    @property
    def own_url(self) -> str | None:
        """The URL of central for links and commands; None if it is not known.

        Without `public_url` the Host header is used only if it names this machine or the address that the request came
        to: a command with a forged host would send the reader's token there.
        """
        if public_url := self.backend.options.public_url.rstrip("/"):
            return public_url
        url, server = self.http.url, self.http.scope.get("server") or ("",)
        return f"{url.scheme}://{url.netloc}" if self._is_named_locally or url.hostname == server[0] else None

    @property
    def _is_named_locally(self) -> bool:
        """Whether the Host header names this machine by a loopback name or address."""
        host = (self.http.url.hostname or "").rstrip(".")
        return host == "localhost" or host.endswith(".localhost") or is_loopback(host)

    @property
    def is_exposed(self) -> bool:
        """Whether the request came over plain HTTP from another machine, so that others may read it.

        A host name other than localhost means that the request passed a network or an undeclared proxy.
        """
        if self.http.url.scheme == "https" or self.backend.options.plain_login:
            return False
        return not (self._is_named_locally and is_loopback(self.origin.address))

    def require_tls(self) -> None:
        """Denied if a password in this request could be read on the network."""
        if self.is_exposed:
            raise Denied(
                "login.plain",
                "passwords are not accepted over plain HTTP from another machine",
                hint="give central a certificate or put a TLS proxy in front of it; see the guide on TLS",
            )

    def path(self, name: str) -> str:
        return str(self.http.path_params[name])

    async def form(self, bytes_max: int = FORM_BYTES_MAX) -> dict[str, str]:
        return await read_form(self.http, self.secret, bytes_max)

    async def fields(self) -> dict[str, list[str]]:
        """All values of each field of the form."""
        return await read_fields(self.http, self.secret)

    def may(self, *roles: Role) -> bool:
        """Whether the visitor has one of these roles."""
        return self.visitor is not None and any(self.visitor.role.includes(role) for role in roles)

    def page(self, template: str, result: int | SubmittedForm = 200, /, **values: object) -> Response:
        """Render the template with a status or a submitted form, and the shared values; `values` override them."""
        form = SubmittedForm(status=result) if isinstance(result, int) else result
        shared: dict[str, object] = {
            "visitor": self.visitor,
            "may_operate": self.may(Role.OPERATOR),
            "may_administer": self.may(Role.ADMIN),
            "is_subscriber": self.may(Role.SUBSCRIBER),
            "csrf": form_token(self.secret) if self.secret else "",
            "here": self.here,
            "path": self.http.url.path,
            "menu": self._menu(),
            "issues": self.issues,
            "change_tokens": self.change_tokens,
            "theme": theme_of(self.http),
            "notice": None,
            "warning": None,
            "errors": form.errors,
            "given": form.given,
            "store_failure": self.backend.watch.health.store_failure if self.may(Role.VIEWER) else None,
        }
        return self.renderer.page(template, form.status, **shared | values)

    def confirm(
        self,
        title: str,
        text: str,
        action: str,
        button: str,
        back: str,
        *,
        hidden: Mapping[str, object] | None = None,
        is_danger: bool = True,
        role: Role | None = None,
        why_not: str | None = None,
        quoted: str = "",
        form: SubmittedForm = EMPTY_FORM,
        template: str = "confirm.html",
        **values: object,
    ) -> Response:
        """The confirmation of an action.

        It is not possible without this `role`, or for the reason `why_not`; `quoted` is foreign text before `text`.
        """
        if role is not None and not self.may(role):
            why_not = f"This requires the role {role.value}."
        asked: dict[str, object] = {"title": title, "text": text, "action": action, "button": button, "back": back}
        asked |= {"hidden": hidden or {}, "is_danger": is_danger, "why_not": why_not, "quoted": quoted}
        return self.page(template, form, **asked | values)

    def notice(self, notices: Mapping[str, str]) -> str | None:
        """The notice about the action before this page, whose redirect ended in `?done=KEY`."""
        return notices.get(self.http.query_params.get("done", ""))

    def _menu(self) -> list[tuple[str, list["MenuLine"]]]:
        """The menu lines that the user may see, by group."""
        groups: dict[str, list[MenuLine]] = {}
        for line in self.menu:
            if self.may(*line.access.roles):
                groups.setdefault(line.group, []).append(line)
        return list(groups.items())

    @property
    def here(self) -> str:
        """Path and query of this page, without `done`."""
        kept = [(name, value) for name, value in self.http.query_params.multi_items() if name != "done"]
        return f"{self.http.url.path}?{urlencode(kept)}" if kept else self.http.url.path


PageHandler = Callable[[PageRequest], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A page: method, path, handler and who may open it."""

    method: str
    path: str
    handler: PageHandler
    access: Access


@dataclass(frozen=True, slots=True)
class MenuLine:
    """A line of the menu."""

    title: str
    path: str
    group: str
    key: str
    """Opens the page when pressed after `g`."""
    access: Access = Access.VIEWER
    badge: tuple[IssueCode, ...] = ()
    """The badge beside it counts the subjects of these issues."""
    badge_label: str = ""
    """The meaning of the number in the badge, for screen readers."""
    also: tuple[str, ...] = ()
    """Path prefixes of pages that belong to this line."""

    def count(self, issues: Sequence[Issue]) -> int:
        """The number in its badge; the line of the Health page, which lists all issues, counts the issues."""
        if self.path == "/":
            return len(issues)
        return sum(issue.subjects for issue in issues if issue.code in self.badge)


def redirect(path: str, done: str | None = None) -> Response:
    """Redirect after a form, so that reloading does not submit it again. `done` selects the notice to show."""
    if done is not None:
        path += f"{'&' if urlsplit(path).query else '?'}done={done}"
    return RedirectResponse(path, 303)


def field_errors(error: FieldpostError) -> dict[str, str]:
    """The error by its field; under the empty name if it has none."""
    return {error.field or "": error_text(error)}


def error_text(error: FieldpostError) -> str:
    """The message and the hint as sentences."""
    return " ".join(f"{text[:1].upper()}{text[1:]}." for text in (error.message, error.hint) if text)


THEME_COOKIE = "fieldpost-theme"
THEMES = ("system", "light", "dark")


def theme_of(request: Request) -> str:
    """The theme that this browser chose."""
    theme = request.cookies.get(THEME_COOKIE, "")
    return theme if theme in THEMES else "system"


def cookie_name(request: Request, name: Literal["session", "visitor", "oidc", "browser"]) -> str:
    """The full name of one of our cookies."""
    # Browsers refuse the __Host- prefix over plain HTTP, which is allowed on loopback.
    return f"__Host-fieldpost-{name}" if request.url.scheme == "https" else f"fieldpost-{name}"


def set_cookie(response: Response, request: Request, name: str, value: str, max_age_s: int | None = None) -> None:
    is_tls = request.url.scheme == "https"
    response.set_cookie(name, value, max_age_s, path="/", secure=is_tls, httponly=True, samesite="lax")


def delete_cookie(response: Response, request: Request, name: str) -> None:
    is_tls = request.url.scheme == "https"
    response.delete_cookie(name, path="/", secure=is_tls, httponly=True, samesite="lax")


def set_session(response: Response, request: Request, session: NewSession) -> None:
    set_cookie(response, request, cookie_name(request, "session"), session.token)
    set_cookie(response, request, cookie_name(request, "browser"), session.browser, BROWSER_S)
    response.delete_cookie(cookie_name(request, "visitor"), path="/")

"""Settings of the login through an identity provider."""

from dataclasses import dataclass, fields
from pathlib import Path

from fieldpost.core.actor import Role
from fieldpost.core.errors import ConfigError, InvalidInput
from fieldpost.core.secret import Secret
from fieldpost.outbound.url import check_url


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcOptions:
    """[oidc]"""

    issuer: str = ""
    """The issuer URL of the identity provider (OpenID Connect); empty: users log in with passwords only. It needs
    `front.public_url`, and at the provider the redirect URI PUBLIC_URL/login/oidc/callback."""
    client_id: str = ""
    """Central's client id at the provider."""
    client_secret_file: str = ""
    """The file with central's client secret."""
    scopes: str = "openid profile email"
    """The requested scopes, separated by spaces."""
    name_claim: str = "preferred_username"
    """The claim that becomes the user name, in lower case."""
    role_claim: str = "groups"
    """The claim that decides the role; dots separate levels: `realm_access.roles`."""
    admin_values: str = ""
    """Values of that claim, separated by spaces, that give the role admin."""
    operator_values: str = ""
    """Values that give the role operator."""
    viewer_values: str = ""
    """Values that give the role viewer. A user without any of these values cannot log in."""
    label: str = "single sign-on"
    """The label of the button on the login page."""

    def __post_init__(self) -> None:
        if not self.issuer:
            given = [f.name for f in fields(self) if getattr(self, f.name) != f.default]
            if given:
                raise ConfigError("settings.oidc", f"oidc.{given[0]} needs oidc.issuer", field="oidc.issuer")
            return
        try:
            check_url(self.issuer, "admin", "oidc.issuer")
        except InvalidInput as error:
            raise ConfigError("settings.oidc", error.message, field="oidc.issuer") from None
        for name in ("client_id", "client_secret_file"):
            if not getattr(self, name):
                raise ConfigError("settings.oidc", f"oidc.{name} is missing", field=f"oidc.{name}")
        if not (self.admin_values or self.operator_values or self.viewer_values):
            raise ConfigError("settings.oidc", "oidc.admin_values is missing: nobody could log in", field="oidc")

    def role_of(self, values: frozenset[str]) -> Role | None:
        """The highest role that one of these values gives, or None."""
        by_role = ((Role.ADMIN, self.admin_values), (Role.OPERATOR, self.operator_values))
        for role, given in (*by_role, (Role.VIEWER, self.viewer_values)):
            if values & set(given.split()):
                return role
        return None

    def secret(self) -> Secret:
        try:
            text = Path(self.client_secret_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                "settings.oidc", f"oidc.client_secret_file cannot be read: {reason}", field="oidc.client_secret_file"
            ) from None
        return Secret(text)

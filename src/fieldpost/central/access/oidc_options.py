"""The settings of login by an identity provider."""

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
    """The identity provider's issuer URL (OpenID Connect); empty: people log in by password alone. It needs
    `front.public_url`, and at the provider the redirect URI PUBLIC_URL/login/oidc/callback."""
    client_id: str = ""
    """Central's name at the provider."""
    client_secret_file: str = ""
    """The file with central's secret at the provider."""
    scopes: str = "openid profile email"
    """What is asked for, parted by spaces."""
    name_claim: str = "preferred_username"
    """The claim that becomes the user's name, in small letters."""
    role_claim: str = "groups"
    """The claim that decides on the role; dots lead deeper: `realm_access.roles`."""
    admin_values: str = ""
    """Values of that claim, parted by spaces, that make an admin."""
    operator_values: str = ""
    """The same for an operator."""
    viewer_values: str = ""
    """The same for a viewer. Whoever has none of all these may not come in."""
    label: str = "single sign-on"
    """What the login page calls it."""

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
            raise ConfigError("settings.oidc", "oidc.admin_values is missing: nobody could come in", field="oidc")

    def role_of(self, values: frozenset[str]) -> Role | None:
        """The highest role that one of these values gives; None for none."""
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

"""The definition of an external system in `site.toml`.

[external.erp]
url = "https://erp.example.com/api"
secret_headers = {Authorization = "erp.secret"}
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fieldpost.core.errors import ConfigError, InvalidInput
from fieldpost.core.secret import Secret
from fieldpost.site.config.headers import check_header
from fieldpost.site.config.secret_files import read_secret
from fieldpost.site.config.target import TargetDefinition, check_file_name, check_type, refused, tls_context

if TYPE_CHECKING:
    from yarl import URL


@dataclass(frozen=True, slots=True, kw_only=True)
class External(TargetDefinition):
    """An external system that scripts call."""

    url: str
    """The base URL, `https://…`, to which the path of a call is added. May be a private address or this machine."""
    allows_plain_http: bool = False
    """Whether `http://` is allowed although the system is not on this machine."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of every call, such as `{Accept = "application/json"}`; a call can override them."""
    secret_headers: Mapping[str, str] = field(default_factory=dict)
    """Headers with secret values: the name of a file with the value, mode 0600, relative to the folder."""

    def __post_init__(self) -> None:
        self._check_shared()
        check_type(self.allows_plain_http, bool, "allows_plain_http", "true or false")
        url = self.base
        if url.raw_query_string or self.url.endswith("?"):
            raise refused("url", "must not have a query (?); each call has its own")
        for option, table in (("headers", self.headers), ("secret_headers", self.secret_headers)):
            check_type(table, dict, option, "a table of names and strings")
            for header, value in table.items():
                check_type(value, str, f"{option}.{header}", "a string")
                is_secret = option == "secret_headers"
                if is_secret:
                    check_file_name(value, f"{option}.{header}")
                check_header(header, "" if is_secret else value, f"{option}.{header}", is_defined=is_secret)
        twice = {name.lower() for name in self.headers} & {name.lower() for name in self.secret_headers}
        if twice:
            raise refused("secret_headers", f"and headers must not both have {', '.join(sorted(twice))}")

    @property
    def base(self) -> "URL":
        """The parsed URL. Raises InvalidInput."""
        # Imported here, so that scripts of sites without external systems start faster.
        from fieldpost.outbound.url import check_url

        return check_url(self.url, "admin", is_plain_allowed=self.allows_plain_http)

    def check(self) -> None:
        """Raise ConfigError if a file that a call needs is missing or unusable."""
        self.secrets()
        tls_context(self.ca_path)

    def secrets(self) -> dict[str, Secret]:
        """The secret headers, read again each time, since secrets are rotated.

        Raises ConfigError for a file that is missing, malformed or readable by other users.
        """
        found = {}
        for header, file in self.secret_headers.items():
            key = f"external.{self.name}.secret_headers.{header}"
            found[header] = secret = read_secret(self.folder / file, key)
            try:
                check_header(header, secret.reveal(), key, is_defined=True)
            except InvalidInput:
                raise ConfigError(
                    "site.secret", f"{self.folder / file} ({key}) does not contain a valid header value", field=key
                ) from None
        return found

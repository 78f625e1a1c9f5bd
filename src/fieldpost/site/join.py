"""Joins central by an invitation: a new folder for a new site, or a new token for an existing one.

The token is created here and stored in the folder before its digest is sent to central: if the join is cut off,
repeating it with the same invitation reuses the token and completes the join.
"""

import os
from pathlib import Path

from fieldpost.core.errors import ConfigError, Conflict, Denied
from fieldpost.link import credentials
from fieldpost.link.credentials import IssuedToken
from fieldpost.link.endpoint import Endpoint
from fieldpost.link.join import join, parse_invitation
from fieldpost.site.config.folder import (
    SETTINGS_FILE,
    TOKEN_FILE,
    Folder,
    make_folder,
    read_folder,
    read_token,
    write_new,
    write_settings,
)

NEW_TOKEN_FILE = "token.new"


def join_central(
    path: Path, invitation: str, entropy: bytes, ca_file: Path | None = None, *, allow_plain: bool = False
) -> Folder:
    """Create the folder of the invited site, or give it a new token; `entropy` is for the token.

    Raises Denied if the invitation cannot be used, Conflict if it is for another site, and Unavailable if central does
    not answer; the join can then be repeated.
    """
    code, url = parse_invitation(invitation)
    before = read_folder(path) if (path / SETTINGS_FILE).exists() else None
    if before is not None and ca_file is None:
        ca_file = before.ca_file
    allow_plain = allow_plain or (before is not None and before.allow_plain)
    Endpoint(url, "", allow_plain=allow_plain).refuse_plain()
    make_folder(path)
    token = _kept_token(path / NEW_TOKEN_FILE, entropy)
    try:
        expected = (before.name, before.node) if before else (None, None)
        joined = join(url, ca_file, code, token, *expected, allow_plain=allow_plain)
    except (Conflict, Denied) as error:
        (path / NEW_TOKEN_FILE).unlink()
        if isinstance(error, Denied) and before is not None:
            hint = f"this folder belongs to the site {before.name} and keeps its token; {error.hint}"
            raise Denied(error.code, error.message, hint=hint) from None
        raise
    # One atomic rename: the agent, which reads the token for each connection, gets the old or the new one.
    os.replace(path / NEW_TOKEN_FILE, path / TOKEN_FILE)
    return before or write_settings(path, joined.name, url, ca_file, joined.node, allow_plain=allow_plain)


def _kept_token(file: Path, entropy: bytes) -> IssuedToken:
    """The token of an earlier, interrupted join, or a new one; stored in its file."""
    try:
        return credentials.of_text(read_token(file))
    except ConfigError as error:
        if error.code != "site.no_token":
            raise
    token = credentials.issue("site", entropy)
    write_new(file, token.text + "\n", 0o600)
    return token

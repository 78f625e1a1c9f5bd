"""Joining central by an invitation: a new folder for a new site, or a new token for a folder that is a site's already.

The token is made here, and lies in the folder before central hears of its digest: whatever breaks off, coming again
with the same invitation takes the same token up and ends what was begun.
"""

import os
from pathlib import Path

from fieldpost.core.errors import ConfigError, Conflict, Denied
from fieldpost.link import credentials
from fieldpost.link.credentials import IssuedToken
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


def join_central(path: Path, invitation: str, entropy: bytes, ca_file: Path | None = None) -> Folder:
    """The folder of the site that the invitation is for, made or given its new token; `entropy` makes the token.

    Raises Denied when the invitation cannot be used, Conflict when it is another site's, Unavailable when central does
    not answer: then the same can be tried again.
    """
    code, url = parse_invitation(invitation)
    before = read_folder(path) if (path / SETTINGS_FILE).exists() else None
    if before is not None and ca_file is None:
        ca_file = before.ca_file
    make_folder(path)
    token = _kept_token(path / NEW_TOKEN_FILE, entropy)
    try:
        name = join(url, ca_file, code, token, before.name if before else None)
    except (Conflict, Denied) as error:
        (path / NEW_TOKEN_FILE).unlink()
        if isinstance(error, Denied) and before is not None:
            hint = f"this folder is the site {before.name}'s and keeps the token that it has; {error.hint}"
            raise Denied(error.code, error.message, hint=hint) from None
        raise
    # One rename: who reads the token meanwhile, as the agent does for each connection, reads the old one or the new.
    os.replace(path / NEW_TOKEN_FILE, path / TOKEN_FILE)
    return before or write_settings(path, name, url, ca_file)


def _kept_token(file: Path, entropy: bytes) -> IssuedToken:
    """The token of an earlier try that broke off, else a new one, in its file."""
    try:
        return credentials.of_text(read_token(file))
    except ConfigError as error:
        if error.code != "site.no_token":
            raise
    token = credentials.issue("site", entropy)
    write_new(file, token.text + "\n", 0o600)
    return token

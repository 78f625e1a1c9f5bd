"""The files of a node in the subfolder `pair` of its site: key, certificates, and the incarnation that the pair shares.

The key is made by the `openssl` command, which nearly every Linux system has: Python's standard library cannot sign a
certificate, and the library that can would be the largest package of a site's installation, for one call in the life of
a machine. Where the command is missing, key and certificate can be made elsewhere and put into the folder.

A node belongs to a pair as long as the certificate of the other node is here, even if its buffer was lost.
"""

import os
import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fieldpost.core.errors import ConfigError
from fieldpost.site.config.folder import make_folder, write_new
from fieldpost.site.pair.peer import PairIdentity, fingerprint

DAYS = 36_500
"""Certificates are pinned and their dates are not checked, but other programs may show them as expired."""
OPENSSL_S = 60.0


@dataclass(frozen=True, slots=True)
class PairFiles:
    """The paths of one node's files."""

    site_folder: Path

    @property
    def folder(self) -> Path:
        return self.site_folder / "pair"

    @property
    def key(self) -> Path:
        return self.folder / "node.key"

    @property
    def certificate(self) -> Path:
        return self.folder / "node.pem"

    @property
    def peer(self) -> Path:
        return self.folder / "peer.pem"

    @property
    def incarnation(self) -> Path:
        return self.folder / "incarnation"

    @property
    def is_paired(self) -> bool:
        return self.peer.exists()

    def identity(self) -> PairIdentity:
        """This node and the other one. Raises ConfigError if a file is missing."""
        return PairIdentity(self.certificate, self.key, _read(self.peer))

    def shared_incarnation(self) -> str:
        """The incarnation of the pair's buffers."""
        return _read(self.incarnation).strip()

    def ensure_certificate(self, name: str) -> str:
        """The fingerprint of this node's certificate, which is made if it does not exist."""
        make_folder(self.folder)
        if not (self.key.exists() and self.certificate.exists()):
            self._make_certificate(name)
        try:
            return fingerprint(ssl.PEM_cert_to_DER_cert(_read(self.certificate)))
        except ValueError as error:
            raise ConfigError("pair.certificate", f"{self.certificate} is not a certificate in PEM: {error}") from None

    def store_peer(self, certificate: str, incarnation: str) -> None:
        """Pin the other node's certificate; the last step of pairing."""
        for file, text in ((self.incarnation, incarnation + "\n"), (self.peer, certificate)):
            fresh = file.with_suffix(".new")
            fresh.unlink(missing_ok=True)
            write_new(fresh, text, 0o600)
            os.replace(fresh, file)
        _sync(self.folder)

    def remove(self) -> None:
        """Forget the pair and this node's key."""
        self.peer.unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make_certificate(self, name: str) -> None:
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-days", str(DAYS), "-subj", f"/CN={name}", "-keyout", str(self.key), "-out", str(self.certificate)]
        files = f"{self.key.name} and {self.certificate.name}"
        hint = f"install OpenSSL, or create {files} elsewhere and copy them to {self.folder}"
        # The key must never be readable by others, not even before its mode is set.
        self.key.unlink(missing_ok=True)
        write_new(self.key, "", 0o600)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=OPENSSL_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            self.key.unlink(missing_ok=True)
            raise ConfigError("pair.openssl", f"the openssl command cannot be run: {error}", hint=hint) from None
        if done.returncode != 0:
            self.key.unlink(missing_ok=True)
            last = done.stderr.strip().splitlines()[-1:] or ["no reason given"]
            raise ConfigError("pair.openssl", f"openssl did not create a certificate: {last[0]}", hint=hint)
        # Before the other node pins it: after a power cut, an empty file would end the pair.
        _sync(self.key, self.certificate, self.folder)


def _sync(*paths: Path) -> None:
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "pair.files", f"{file} cannot be read: {error}", hint="pair the nodes again: fieldpost site pair init"
        ) from None

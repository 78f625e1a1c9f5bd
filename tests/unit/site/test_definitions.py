"""What site.toml defines: external systems and database connections, and every way to write that wrongly."""

import os
import textwrap
from datetime import timedelta
from pathlib import Path

import pytest

from fieldpost.core.errors import ConfigError, InvalidInput
from fieldpost.site.config.database import Database
from fieldpost.site.config.database_url import PostgresqlUrl, SqliteUrl
from fieldpost.site.config.definitions import find_definition
from fieldpost.site.config.external import External
from fieldpost.site.config.folder import Folder, read_folder
from fieldpost.site.config.secret_files import read_secret

SITE = """
[site]
name = "plant-7"
[central]
url = "https://central.example.com"
"""
FULL = """
[outbound]
allow = "metadata.internal"

[external.erp]
url = "https://erp.example.com/api"
timeout_s = 3
retry_interval_s = 30
retries_max = 4
ca_file = "erp-ca.pem"
headers = {Accept = "application/json"}
secret_headers = {Authorization = "erp.secret"}

[external.press-2]
url = "http://127.0.0.1:8080"

[database.plant]
url = "postgresql://field@db.example.com:5433/plant"
password_file = "plant.secret"
timeout_s = 2.5
retry_interval_s = 5
retries_max = 0
[database.plant.statements]
count = "INSERT INTO counts VALUES (:call_id, :n)"

[database.local]
url = "sqlite:///local.db"
allows_free_sql = true
"""


def folder(path: Path, text: str) -> Folder:
    (path / "site.toml").write_text(SITE + textwrap.dedent(text))
    return read_folder(path)


@pytest.mark.req("SF-09", "SF-10")
def test_definition_sets_timeout_interval_and_number_of_retries(tmp_path: Path) -> None:
    found = folder(tmp_path, FULL)
    erp, press, plant = found.externals["erp"], found.externals["press-2"], found.databases["plant"]
    assert (erp.timeout_s, erp.retry_interval, erp.retries_max) == (3, timedelta(seconds=30), 4)
    assert (press.timeout_s, press.retry_interval, press.retries_max) == (10, timedelta(seconds=60), 10)
    assert (plant.timeout_s, plant.retry_interval, plant.retries_max) == (2.5, timedelta(seconds=5), 0)
    assert erp.ca_path == tmp_path / "erp-ca.pem"
    assert found.outbound.allow == "metadata.internal"


def test_site_without_definitions_file_has_no_definitions(tmp_path: Path) -> None:
    found = folder(tmp_path, "")
    assert (dict(found.externals), dict(found.databases)) == ({}, {})


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://u@db.example.com/d", PostgresqlUrl("db.example.com", 5432, "u", "d")),
        ("postgres://u%40x@[::1]:5433/d%20e", PostgresqlUrl("::1", 5433, "u@x", "d e")),
        ("postgresql://u@/d?host=/run/pg", PostgresqlUrl("/run/pg", 5432, "u", "d")),
        ("sqlite:////var/lib/x.db", SqliteUrl(Path("/var/lib/x.db"))),
        ("sqlite:///x.db", SqliteUrl(Path("/site/x.db"))),
    ],
)
def test_a_url_names_a_server_a_socket_or_a_file(url: str, place: PostgresqlUrl | SqliteUrl) -> None:
    definition = Database(name="plant", folder=Path("/site"), url=url, allows_free_sql=True)
    assert definition.place == place
    assert definition.dialect == place.dialect


@pytest.mark.parametrize(
    ("url", "tls", "speaks"),
    [
        ("postgresql://u@db.example.com/d", None, True),
        ("postgresql://u@10.0.0.5/d", None, True),
        ("postgresql://u@10.0.0.5/d", False, False),
        ("postgresql://u@localhost/d", None, False),
        ("postgresql://u@127.0.0.1/d", True, True),
        ("postgresql://u@/d?host=/run/pg", None, False),
    ],
)
def test_tls_is_the_default_except_for_servers_on_this_machine(url: str, tls: bool | None, speaks: bool) -> None:
    assert Database(name="plant", url=url, tls=tls, allows_free_sql=True).speaks_tls is speaks


ERP = '[external.erp]\nurl = "https://erp.example.com"\n'
PLANT = '[database.plant]\nurl = "postgresql://u@db.example.com/d"\nallows_free_sql = true\n'
FILE = '[database.plant]\nurl = "sqlite:///x.db"\n'


@pytest.mark.bad_input(8)
@pytest.mark.parametrize(
    ("text", "key", "rule"),
    [
        ("[[external]]\nurl = 'x'", "external", "must be a section"),
        ("[external]\nerp = 3", "external.erp", "must be a section"),
        ("[externals.erp]\nurl = 'https://x.example'", "externals", "is unknown"),
        ("[external.erp]\ntimeout_s = 3", "external.erp.url", "is missing"),
        (ERP + "retries = 3", "external.erp.retries", "is unknown"),
        (ERP + "name = 'x'", "external.erp.name", "is unknown"),
        (ERP + "folder = 'x'", "external.erp.folder", "is unknown"),
        ("[external.'e rp']\nurl = 'https://x.example'", "external.e rp", "name"),
        ("[external.'7']\nurl = 'https://x.example'", "external.7", "name"),
        ("[external.erp]\nurl = 7", "external.erp.url", "must be a str"),
        ("[external.erp]\nurl = 'ftp://x.example'", "external.erp.url", "must begin with"),
        ("[external.erp]\nurl = 'http://x.example'", "external.erp.url", "must begin with https"),
        ("[external.erp]\nurl = 'https://u:p@x.example'", "external.erp.url", "user name or password"),
        ("[external.erp]\nurl = 'https://x.example/?key=1'", "external.erp.url", "query"),
        ("[external.erp]\nurl = 'https://x.example/?'", "external.erp.url", "query"),
        ("[external.erp]\nurl = 'https://x.example/#a'", "external.erp.url", "fragment"),
        (ERP + "timeout_s = 0", "external.erp.timeout_s", "0.05 to 600"),
        (ERP + "timeout_s = nan", "external.erp.timeout_s", "0.05 to 600"),
        (ERP + "timeout_s = '5s'", "external.erp.timeout_s", "0.05 to 600"),
        (ERP + "retry_interval_s = 86401", "external.erp.retry_interval_s", "to 86400"),
        (ERP + "retries_max = -1", "external.erp.retries_max", "must be an integer"),
        (ERP + "retries_max = 1.5", "external.erp.retries_max", "must be an integer"),
        (ERP + "retries_max = true", "external.erp.retries_max", "must be an integer"),
        (ERP + "allows_plain_http = 1", "external.erp.allows_plain_http", "true or false"),
        (ERP + "ca_file = 3", "external.erp.ca_file", "name of a file"),
        (ERP + "headers = 3", "external.erp.headers", "table"),
        (ERP + "headers = {A = 3}", "external.erp.headers.A", "must be a string"),
        (ERP + 'headers = {A = "x\\r\\ny: z"}', "external.erp.headers.A", "must be one line"),
        (ERP + "headers = {Host = 'x'}", "external.erp.headers.Host", "is set by Fieldpost"),
        (ERP + "headers = {Authorization = 'x'}", "external.erp.headers.Authorization", "secret_headers"),
        (ERP + "secret_headers = {Authorization = ''}", "external.erp.secret_headers.Authorization", "name of a file"),
        (ERP + "secret_headers = {'A:b' = 'f'}", "external.erp.secret_headers.A:b", "not a valid header name"),
        (ERP + "headers = {X = 'y'}\nsecret_headers = {x = 'f'}", "external.erp.secret_headers", "both have x"),
        ("[database.plant]\nurl = 'mysql://u@h/d'", "database.plant.url", "must start with postgresql"),
        ("[database.plant]\nurl = 3", "database.plant.url", "must be a string"),
        ("[database.plant]\nurl = 'postgresql://u:pw@h/d'", "database.plant.url", "password_file"),
        ("[database.plant]\nurl = 'postgresql://h/d'", "database.plant.url", "must be postgresql://user@host"),
        ("[database.plant]\nurl = 'postgresql://u@h'", "database.plant.url", "must be postgresql://user@host"),
        ("[database.plant]\nurl = 'postgresql://u@h:x/d'", "database.plant.url", "not a valid URL"),
        ("[database.plant]\nurl = 'postgresql://u@h/d?sslmode=disable'", "database.plant.url", "no option after the ?"),
        ("[database.plant]\nurl = 'sqlite://x.db'", "database.plant.url", "must be sqlite"),
        ("[database.plant]\nurl = 'sqlite:///'", "database.plant.url", "must be sqlite"),
        ("[database.plant]\nurl = 'sqlite:///buffer.db'\nallows_free_sql = true", "database.plant.url", "own buffer"),
        ("[database.plant]\nurl = 'sqlite:///a/../buffer.db'", "database.plant.url", "own buffer"),
        (FILE, "database.plant.statements", "at least one statement"),
        (FILE + "tls = true", "database.plant.tls", "does not apply"),
        (FILE + "password_file = 'f'", "database.plant.password_file", "does not apply"),
        (PLANT + "tls = 'yes'", "database.plant.tls", "true or false"),
        (PLANT + "allows_free_sql = 1", "database.plant", "TOML"),
        (PLANT + "statements = 'x'", "database.plant.statements", "table"),
        (
            PLANT + "[database.plant.statements]\ncount = 'DROP TABLE t'",
            "database.plant.statements.count",
            "start with",
        ),
        (PLANT + "[database.plant.statements]\n'a b' = 'x'", "database.plant.statements.a b", "name"),
        (PLANT + "[database.plant.statements]\ncount = 3", "database.plant.statements.count", "must be a string"),
        ("[outbound]\nallow = 'a b/c'", "outbound.allow", "is not a host name"),
        ("[outbound]\nallow = ['a']", "outbound.allow", "must be a string"),
        ("[outbound]\ndeny = 'a'", "outbound.deny", "is unknown"),
        ("[outbound]\nconnections = 1.5", "outbound.connections", "must be an integer of at least 1, got 1.5"),
        ("[outbound]\nlookup_timeout_s = 'a'", "outbound.lookup_timeout_s", "at most 300, got 'a'"),
    ],
)
def test_invalid_definition_is_rejected_naming_file_and_key(tmp_path: Path, text: str, key: str, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        folder(tmp_path, text)
    assert str(tmp_path / "site.toml") in caught.value.message
    if rule == "TOML":
        return
    assert caught.value.field == key
    assert key in caught.value.message
    assert rule in caught.value.message


@pytest.mark.bad_input(8)
@pytest.mark.parametrize("name", ["crm", "https://erp.example.com", "", 7, None, "x" * 1000])
def test_undefined_target_is_rejected(tmp_path: Path, name: object) -> None:
    found = folder(tmp_path, FULL)
    for definitions, kind, code in (
        (found.externals, External, "external.undefined"),
        (found.databases, Database, "database.undefined"),
    ):
        with pytest.raises(InvalidInput) as caught:
            find_definition(definitions, name, kind)  # type: ignore[arg-type]
        assert caught.value.code == code
        assert len(caught.value.message) < 300
    assert find_definition(found.externals, "erp", External) is found.externals["erp"]


def test_secret_is_the_only_line_of_its_file_and_read_again_each_time(tmp_path: Path) -> None:
    definition = folder(tmp_path, FULL).databases["plant"]
    file = tmp_path / "plant.secret"
    for text in ("first", "second"):
        file.write_text(text + "\r\n")
        os.chmod(file, 0o600)
        password = definition.password()
        assert password is not None
        assert password.reveal() == text
        assert text not in repr(password)


@pytest.mark.threat(23)
@pytest.mark.parametrize(
    ("content", "mode", "code"),
    [
        (None, 0, "site.no_secret"),
        (b"pa55word", 0o640, "site.secret_open"),
        (b"pa55word", 0o604, "site.secret_open"),
        (b"", 0o600, "site.secret"),
        (b"pa55word" * 1000, 0o600, "site.secret"),
        (b"\xffpa55word", 0o600, "site.secret"),
        (b"pa55\x00word", 0o600, "site.secret"),
    ],
)
def test_missing_open_or_malformed_secret_file_is_rejected_without_its_content(
    tmp_path: Path, content: bytes | None, mode: int, code: str
) -> None:
    file = tmp_path / "plant.secret"
    if content is not None:
        file.write_bytes(content)
        os.chmod(file, mode)
    with pytest.raises(ConfigError) as caught:
        read_secret(file, "database.plant.password_file")
    assert caught.value.code == code
    assert caught.value.field == "database.plant.password_file"
    assert str(file) in caught.value.message
    assert "pa55" not in str(caught.value)


def test_files_of_a_definition_are_checked_before_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for definition, code in (
        (External(name="a", folder=tmp_path, url="https://a.example", secret_headers={"X": "no"}), "site.no_secret"),
        (External(name="a", folder=tmp_path, url="https://a.example", ca_file="site.toml"), "site.ca_file"),
        (_postgresql(tmp_path, password_file="no"), "site.no_secret"),
        (_postgresql(tmp_path, ca_file="no"), "site.ca_file"),
    ):
        with pytest.raises(ConfigError) as caught:
            definition.check()
        assert caught.value.code == code
    External(name="a", url="https://a.example").check()
    _postgresql(tmp_path).check()
    monkeypatch.setattr("fieldpost.site.config.database.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="asyncpg is not installed"):
        _postgresql(tmp_path).check()


def _postgresql(folder: Path, **changes: str) -> Database:
    return Database(name="b", folder=folder, url="postgresql://u@b.example/d", allows_free_sql=True, **changes)  # type: ignore[arg-type]

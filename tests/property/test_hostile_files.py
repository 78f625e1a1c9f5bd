"""CSV files, settings and replies of mail servers, made of pieces that break parsers: an answer or a typed error."""

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from aiosmtplib.errors import SMTPException
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fieldpost.central.adapters.email.wire import SmtpWire
from fieldpost.core.errors import ConfigError, InvalidInput
from fieldpost.core.lists import NotificationList
from fieldpost.front.files.lists import COLUMNS, from_csv, to_csv
from fieldpost.run.settings import CentralSettings, load
from fieldpost.site.config.folder import read_folder

pieces = st.sampled_from(
    [*COLUMNS, ",", ";", "\n", "\r\n", '"', '""', "'", "=1", "\ufeff", "a", "ops", "true", "|", "\x00", "ü", "\t"]
)
csv_texts = st.lists(pieces, max_size=40).map("".join) | st.builds(
    lambda rows: ",".join(COLUMNS) + "\n" + rows, st.lists(pieces, max_size=30).map("".join)
)
cells = st.text(alphabet="=+-@;,'\"\t ab|\\", min_size=1, max_size=8).filter(lambda text: text.strip() != "")
lists = st.builds(
    NotificationList,
    name=cells,
    type=st.just("email"),
    channel_name=st.none() | cells,
    targets=st.lists(cells, min_size=1, max_size=3, unique=True).map(tuple),
    park_uncertain=st.booleans(),
)


@pytest.mark.threat(38)
@given(csv_texts)
def test_any_text_is_a_file_of_lists_or_invalid_input(text: str) -> None:
    with suppress(InvalidInput):
        assert all(isinstance(spec.name, str) and spec.targets for spec in from_csv(text))


@pytest.mark.threat(38)
@given(lists)
def test_an_exported_list_is_read_back_as_it_was(one: NotificationList) -> None:
    [spec] = from_csv(to_csv([one]))
    assert (spec.name, spec.channel, list(spec.targets)) == (one.name, one.channel_name, list(one.targets))


SECTIONS = [*CentralSettings.__dataclass_fields__, "site", "forward", "local", "unknown"]
values = st.sampled_from(
    ["1", "-1", "0", "1e999", "nan", "true", '"text"', '""', "[]", "{}", "1979-05-27", "'", '"\\u0000"']
)
keys = st.sampled_from(
    ["port", "url", "name", "slots", "interval_s", "store", "host", "tls_cert", "folder", '"a b"', "x"]
)
toml_lines = st.one_of(
    st.sampled_from(SECTIONS).map(lambda name: f"[{name}]"),
    st.builds(lambda key, value: f"{key} = {value}", keys, values),
    st.sampled_from(["", "# note", "=", "[", "\ufeff", "key", "\x00", "[[front]]", "a.b.c = 1"]),
)
toml_texts = st.lists(toml_lines, max_size=8).map("\n".join)


@pytest.mark.bad_input(51)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(toml_texts)
def test_any_file_of_settings_is_read_or_refused_by_name(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        central, site = Path(folder) / "fieldpost.toml", Path(folder) / "site.toml"
        for file, read in ((central, lambda: load(central, {})), (site, lambda: read_folder(Path(folder)))):
            file.write_text(text, encoding="utf-8", newline="")
            with suppress(ConfigError):
                read()


codes = st.sampled_from([b"220", b"250", b"354", b"421", b"550", b"999", b"2", b"", b"25O", b"-12", b"\xff\xfe"])
replies = st.lists(
    st.builds(
        lambda code, mark, text, end: code + mark + text + end,
        codes,
        st.sampled_from([b" ", b"-", b"", b"\t", b"\x00"]),
        st.binary(max_size=20) | st.just(b"x" * 2_000),
        st.sampled_from([b"\r\n", b"\n", b"\r", b""]),
    ),
    max_size=6,
).map(b"".join)


@pytest.mark.threat(18)
@settings(deadline=None)
@given(st.lists(replies, max_size=4))
def test_any_bytes_of_a_mail_server_are_replies_or_an_smtp_error(packets: list[bytes]) -> None:
    async def converse() -> None:
        wire = SmtpWire()
        for packet in packets:
            wire.data_received(packet)
        wire.eof_received()
        for _ in range(30):
            response = await wire.read_response(0.01)
            assert isinstance(response.code, int)
            assert isinstance(response.message, str)

    try:
        asyncio.run(converse())
    except SMTPException:
        return

"""CSV cells that are safe in spreadsheets.

A spreadsheet evaluates a cell that starts with =, +, - or @ as a formula. In locales that separate cells by semicolons,
the text after a semicolon, tab or line end starts a cell too. At each such place an apostrophe is written before a
formula character or another apostrophe; reading removes it, so a round trip changes nothing.
"""

import re

_FORMULA = r"=+\-@\t\r\n＝＋－＠'"
_START = r"(?:\A|(?<=[;\t\r\n]))"
_UNSAFE = re.compile(f"{_START}(?=[{_FORMULA}])")
_WRITTEN = re.compile(f"{_START}'(?=[{_FORMULA}])")


def to_cell(value: str) -> str:
    return _UNSAFE.sub("'", value)


def from_cell(cell: str) -> str:
    return _WRITTEN.sub("", cell)

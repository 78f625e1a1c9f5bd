"""Cells of CSV files that a spreadsheet runs nothing of.

A spreadsheet takes a cell that begins with =, +, - or @ for a formula and runs it, so such a cell is written with an
apostrophe before it, as is one that begins with an apostrophe; reading takes that apostrophe away again, so nothing is
changed on the way out and back.
"""

_FORMULA = "=+-@\t\r＝＋－＠"


def to_cell(value: str) -> str:
    return f"'{value}" if value.startswith((*_FORMULA, "'")) else value


def from_cell(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith((*_FORMULA, "'")) else cell

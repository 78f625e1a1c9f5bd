"""CSV cells that are safe in spreadsheets.

A spreadsheet evaluates a cell that starts with =, +, - or @ as a formula. Such a cell, and one that starts with an
apostrophe, is written with a leading apostrophe; reading removes it, so a round trip changes nothing.
"""

_FORMULA = "=+-@\t\r＝＋－＠"


def to_cell(value: str) -> str:
    return f"'{value}" if value.startswith((*_FORMULA, "'")) else value


def from_cell(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith((*_FORMULA, "'")) else cell

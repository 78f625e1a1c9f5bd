"""Guides as pages show them."""

from fieldpost.central.adapters.email.description import GUIDE
from fieldpost.front.console.kit.markdown import Block, Piece, read_guide

PAGE = """# Title

A line with `code`, **weight**
and [a link](else.md).

| a | b |
|---|---|
| `x` | <script> |

- one
  goes on
- two

## More

    $ typed
    as it is
"""


def plain(block: Block) -> list[list[str]]:
    return [["".join(piece.text for piece in cell) for cell in line] for line in block.lines]


def test_a_guide_is_read_block_by_block_without_its_title() -> None:
    blocks = read_guide(PAGE)
    assert [block.kind for block in blocks] == ["paragraph", "table", "items", "heading", "code"]
    assert [plain(block) for block in blocks] == [
        [["A line with code, weight and a link."]],
        [["a", "b"], ["x", "<script>"]],
        [["one goes on"], ["two"]],
        [["More"]],
        [["$ typed\nas it is"]],
    ]
    assert blocks[0].lines[0][0][:4] == [
        Piece("plain", "A line with "),
        Piece("code", "code"),
        Piece("plain", ", "),
        Piece("strong", "weight"),
    ]


def test_email_guide_is_rendered_completely() -> None:
    shown = " ".join(cell for block in read_guide(GUIDE) for line in plain(block) for cell in line)
    assert "data_timeout_s" in shown
    assert "müller.example" in shown
    assert not any(mark in shown for mark in ("`", "**", "|"))


def test_empty_guide_has_no_blocks() -> None:
    assert read_guide("") == []

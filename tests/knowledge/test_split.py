"""Documents become passages: bounded, complete, with their place, and stable under edits elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassloop.core.errors import ConfigurationError
from glassloop.knowledge.documents import Document, Passage, Section
from glassloop.knowledge.load import parse
from glassloop.knowledge.split import split

BLOCKS = [
    "Customers may ask for a refund within seven days. The desk answers within 48 hours.",
    "客户在收到商品后七天内可以申请退款。客服在四十八小时内答复！是否需要寄回商品？需要。",
    "| size | price |\n| --- | --- |\n| S | 10 |\n| M | 12 |",
    "```python\ndef refund(order):\n    return order.total\n\n\nrefund(1)\n```",
    "- one\n- two\n  - nested",
    "> quoted, on\n> two lines",
    "\u3000\u3000全角空格开头。",
    "👩‍👩‍👧‍👦 e\u0301 ﷽",
    "   \n\t\n",
    "a" * 300,
    "---",
]

texts = st.lists(st.sampled_from(BLOCKS) | st.text(st.characters(codec="utf-8", exclude_characters="\r"))).map(
    "\n\n".join
)


def document(*sections: Section) -> Document:
    return Document("guide.md", "Guide", sections, "d")


def solid(text: str) -> str:
    return "".join(text.split())


def covers(text: str, parts: Sequence[str]) -> bool:
    """Whether the parts, in order and overlapping or not, hold every character of `text` that is not blank."""
    whole, at = solid(text), 0
    for part in map(solid, parts):
        begins = [begin for begin in range(max(0, at - len(part)), at + 1) if whole.startswith(part, begin)]
        if not begins:
            return False
        at = max(at, begins[-1] + len(part))
    return at == len(whole)


def digests(passages: Sequence[Passage]) -> list[str]:
    return [passage.digest for passage in passages]


@settings(max_examples=200, deadline=None)
@given(st.lists(texts, max_size=4), st.integers(20, 300), st.integers(0, 19))
def test_nothing_is_lost_and_every_passage_fits(bodies: list[str], size: int, overlap: int) -> None:
    sections = [Section(body, (f"heading {number}",)) for number, body in enumerate(bodies)]
    passages = split(document(*sections), size=size, overlap=overlap)
    assert all(passage.text.strip() and len(passage.text) <= size for passage in passages)
    assert [passage.position for passage in passages] == list(range(len(passages)))
    for section in sections:
        assert covers(section.text, [each.text for each in passages if each.headings == section.headings])
    assert split(document(*sections), size=size, overlap=overlap) == passages
    assert len(set(digests(passages))) == len(passages)


def test_a_change_in_a_section_changes_its_own_passages_only() -> None:
    sections = [Section("\n\n".join(BLOCKS[:5] * 8), (f"heading {number}",)) for number in range(4)]
    before = split(document(*sections))
    changed = replace(sections[1], text="New at the top.\n\n" + sections[1].text)
    after = split(document(sections[0], changed, *sections[2:]))
    new = [passage for passage in after if passage.digest not in digests(before)]
    assert {passage.headings for passage in new} == {("heading 1",)}
    assert len(before) > 8


def test_a_passage_says_where_it_stands() -> None:
    lines = "\n\n".join(f"Line {number} of the text." for number in range(100))
    passages = split(document(Section(lines, ("Top", "Sub"), line=11, verbatim=True), Section("p", page=3)), size=200)
    whole = ["" for _ in range(10)] + lines.split("\n")
    assert all(whole[passage.line - 1] == passage.text.split("\n")[0] for passage in passages if passage.line)
    assert passages[-1] == replace(passages[-1], source="guide.md", title="Guide", page=3, line=None, headings=())
    assert passages[3].headings == ("Top", "Sub")
    assert passages[3].line is not None


def test_lines_are_counted_where_passages_overlap() -> None:
    text = "".join(f"Sentence {number} is here.\n" for number in range(2000))
    passages = split(document(Section(text, line=1, verbatim=True)), size=120, overlap=60)
    assert [passage.line for passage in passages] == [1 + int(passage.text.split()[1]) for passage in passages]
    assert passages[1].text.split("\n")[0] in passages[0].text


def test_rows_of_a_csv_file_keep_their_number_however_long() -> None:
    rows = parse(("name,text\n" + f"a,{'word ' * 400}\nb,short\n").encode(), "t.csv")
    numbers = [passage.line for passage in split(rows)]
    assert numbers == [*[2] * (len(numbers) - 1), 3]
    assert len(numbers) > 3


def test_chinese_is_cut_at_the_end_of_sentences() -> None:
    text = "客户在收到商品后七天内可以申请退款。客服在四十八小时内答复！是否需要寄回商品？需要。" * 60
    passages = split(document(Section(text)))
    assert len(passages) > 2
    assert all(passage.text[-1] in "。！？" for passage in passages)
    assert all(passage.text[0] in "客是需" for passage in passages)


def test_a_table_and_a_block_of_code_stay_whole() -> None:
    filler = "Some words before it, to fill the passage. " * 12
    for block in (BLOCKS[2], BLOCKS[3]):
        passages = split(document(Section(f"{filler}\n\n{block}\n\n{filler}")), size=560)
        assert any(block in passage.text for passage in passages)


def test_rows_of_a_long_table_stay_whole() -> None:
    rows = [f"| item {number} | a description of it that is long | {number}.00 |" for number in range(60)]
    passages = split(document(Section("\n".join(["| a | b | c |", "| --- | --- | --- |", *rows]))))
    lines = [line for passage in passages for line in passage.text.split("\n")]
    assert len(passages) > 3
    assert set(rows) <= set(lines)
    assert all(line.startswith("| ") and line.endswith(" |") for line in lines)


def test_equal_passages_of_a_document_are_told_apart() -> None:
    twice = split(document(Section("Page 1 of 2", page=1), Section("Page 1 of 2", page=2)))
    assert len(set(digests(twice))) == 2
    assert [passage.page for passage in twice] == [1, 2]


def test_headings_belong_to_the_identity_and_the_place_does_not() -> None:
    one, other, moved = (
        split(document(section))[0].digest
        for section in (Section("text", ("A",)), Section("text", ("B",)), Section("text", ("A",), line=9))
    )
    assert one != other
    assert one == moved


@pytest.mark.timeout(60)  # minutes, if it were given to the splitter in one piece
def test_a_long_text_without_any_break_is_split_in_linear_time() -> None:
    text = "abcdefghij" * 300_000
    assert "".join(passage.text for passage in split(document(Section(text)), overlap=0)) == text


def test_an_overlap_as_large_as_the_passage_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="overlap of 80"):
        split(document(Section("text")), size=80, overlap=80)

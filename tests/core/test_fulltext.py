"""Tokens and queries, against FTS5 itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassloop.core.fulltext import FTS5_TOKENIZER, MOST_TERMS, match_query, query_terms, tokens

HAN = st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF)
KANA = st.characters(min_codepoint=0x3041, max_codepoint=0x3096)
HANGUL = st.characters(min_codepoint=0xAC00, max_codepoint=0xD7A3)
RARE = st.characters(min_codepoint=0x2B820, max_codepoint=0x2CEA1)
THAI = st.characters(min_codepoint=0x0E01, max_codepoint=0x0E3A)  # with signs that are no letters
BETWEEN = st.sampled_from(" ，。,.\n\"'()*:^-+a1Z９é😀\u0301")
CJK = st.one_of(HAN, KANA, HANGUL, RARE, THAI)


class Table:
    """One FTS5 table, as an index would make it."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:")
        self.connection.execute(f'CREATE VIRTUAL TABLE texts USING fts5(words, tokenize = "{FTS5_TOKENIZER}")')

    def keep(self, *texts: str) -> None:
        self.connection.execute("DELETE FROM texts")
        rows = [(number, " ".join(tokens(text))) for number, text in enumerate(texts)]
        self.connection.executemany("INSERT INTO texts (rowid, words) VALUES (?, ?)", rows)

    def find(self, query: str) -> list[int]:
        expression = match_query(query)
        if not expression:
            return []
        sql = "SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rank"
        return [row[0] for row in self.connection.execute(sql, (expression,))]


@pytest.fixture(name="table", scope="module")
def _table() -> Iterator[Table]:
    table = Table()
    yield table
    table.connection.close()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("退款单", ["退款", "款单", "单"]),
        ("款", ["款"]),
        ("48小时内 Refund", ["48", "小时", "时内", "内", "refund"]),
        ("ＡＢＣ１２３", ["abc123"]),
        ("ｶﾞｽ", ["ガス", "ス"]),
        ("Café, naïf: STRASSE straße", ["caf", "naif", "strass", "strass"]),
        ("한국어", ["한국", "국어", "어"]),
        ("snake_case order-no. A-1001", ["snak", "cas", "order", "no", "a", "1001"]),
        ("", []),
        (" …!?_ \n", []),
        ("हिन्दी में", ["हिन्दी", "में"]),
    ],
)
def test_a_text_becomes_tokens(text: str, found: list[str]) -> None:
    assert tokens(text) == found


@given(st.lists(st.one_of(CJK, BETWEEN), min_size=1, max_size=40).map("".join), st.data())
def test_every_piece_of_a_run_is_found(table: Table, text: str, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(text) - 1))
    last = data.draw(st.integers(first + 1, len(text)))
    piece = text[first:last]
    table.keep(text)
    if any(char.isalpha() and not char.isascii() and char != "é" for char in piece):
        assert table.find(piece) == [0]


@given(st.text(max_size=300))
def test_whatever_is_asked_is_valid(table: Table, query: str) -> None:
    table.keep("anything")
    table.find(query)


@pytest.mark.parametrize(
    "query", ['"', "a AND", "NOT b", "NEAR(a b", "col:x", "a*", "^a", "{a b}:c", "'; DROP", "\x00a"]
)
def test_the_query_language_means_nothing(table: Table, query: str) -> None:
    table.keep("a b col x and not near drop c")
    assert table.find(query) in ([0], [])
    assert bool(table.find(query)) == bool(tokens(query))


def test_a_question_finds_the_passage_that_has_most_of_it(table: Table) -> None:
    table.keep("运费由买家承担。", "退款在四十八小时内到账。", "到账短信可能延迟。", "发票可以补开。")
    assert table.find("我的退款要多久才能到账？")[0] == 1


def test_one_character_finds_the_runs_that_have_it(table: Table) -> None:
    table.keep("快递单号", "单", "订单", "没有")
    assert sorted(table.find("单")) == [0, 1, 2]


def test_a_long_text_asks_for_a_bounded_number_of_things(table: Table) -> None:
    table.keep("一二三")
    query = "".join(chr(0x4E00 + number) for number in range(5000)) + " word" * 5000
    assert len(query_terms(query)) == MOST_TERMS
    table.find(query)


@pytest.mark.parametrize(
    "forms",
    [
        ("refund", "refunds", "refunded", "refunding"),
        ("ship", "ships", "shipped", "shipping"),
        ("policy", "policies"),
        ("change", "changes", "changed", "changing"),
        ("address", "addresses", "addressed"),
        ("fall", "falls", "falling"),
        ("box", "boxes"),
        ("bus",),
        ("need", "needs", "needed"),
    ],
)
def test_forms_of_an_english_word_are_one_token(forms: tuple[str, ...]) -> None:
    assert len({tuple(tokens(form)) for form in forms}) == 1


@pytest.mark.parametrize("words", [("sing", "s"), ("red", "r"), ("status", "statu"), ("news", "n"), ("3000s", "3000")])
def test_other_words_stay_apart(words: tuple[str, str]) -> None:
    assert tokens(words[0]) != tokens(words[1])


def test_words_are_compared_without_case_width_and_accents(table: Table) -> None:
    table.keep("The CAFÉ opens at ９", "ﾃﾞｰﾀ")
    assert table.find("cafe") == [0]
    assert table.find("9") == [0]
    assert table.find("データ") == [1]


def test_vowel_signs_are_part_of_a_word(table: Table) -> None:
    table.keep("कि", "ที่")
    assert table.find("कि") == [0]
    assert table.find("का") == []
    assert table.find("ทา") == []

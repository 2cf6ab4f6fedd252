"""Words for full-text search, the same ones when a text is kept and when it is looked for.

Chinese, Japanese, Korean, Thai and their like put no spaces between words. A run of their characters becomes
overlapping two-character tokens and its last character alone (退款单 gives 退款, 款单, 单): every piece of it can be
found, down to one character, without a dictionary.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

FTS5_TOKENIZER = "unicode61 remove_diacritics 0 categories 'L* M* N* P* S* C*'"
"""For `CREATE VIRTUAL TABLE ... USING fts5(..., tokenize = "...")`: splits at spaces, and nowhere else.

With SQLite's own settings the vowel signs of Thai and Hindi would separate words, and be found by nobody.
"""

MOST_TERMS = 200
"""Terms of a query that are looked for; the rest of a longer text adds nothing but time."""

_RUN = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Myanmar, Khmer
    "\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"  # kana, 々, ー
    "\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # 注音, Han
    "\uac00-\ud7a3"  # Hangul
)
_MARKS = "\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0966-\u0dff"
_PIECE = re.compile(rf"[{_RUN}]+|(?:(?![{_RUN}])(?:[^\W_]|[{_MARKS}]))+")
_IN_RUN = re.compile(rf"[{_RUN}]")
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_INFLECTED = re.compile(r"(.*[aeiouy].*[^e])(?:ed|ing)")
_ACCENT = re.compile(r"(?<=[a-z])[\u0300-\u036f]+")


@dataclass(frozen=True, slots=True)
class Term:
    """Something to look for: a token; with `prefix`, every token that begins with it."""

    token: str
    prefix: bool = False


def tokens(text: str) -> list[str]:
    """What a text is found by, in order.

    Args:
        text: any; compared without case, width (NFKC), accents of Latin letters and endings of English words.
    """
    found: list[str] = []
    for piece in _pieces(text):
        found.extend([*_pairs(piece), piece[-1]] if _IN_RUN.match(piece) else [_stem(piece)])
    return found


def query_terms(text: str) -> list[Term]:
    """What to look for, each at most once: a passage is better the more of them it has, and none is required.

    A run of characters is looked for by its pairs. As a phrase it would be found only where it stands as a whole, and
    a question hardly does; phrases beside the pairs made rankings worse (bench/retrieval). One character alone is a
    prefix.
    """
    terms: dict[Term, None] = {}
    for piece in _pieces(text):
        if len(terms) >= MOST_TERMS:
            break
        terms.update(dict.fromkeys(_terms(piece)))
    return list(terms)[:MOST_TERMS]


def match_query(text: str) -> str:
    """What to look for as an FTS5 `MATCH` expression, for a column that holds `" ".join(tokens(...))`.

    Whatever the text, it is valid: quotes, operators and other signs of FTS5's language mean nothing in it.

    Returns:
        The terms of `query_terms`, OR-ed; empty if there is nothing to look for, which FTS5 would refuse.
    """
    return match_expression(query_terms(text))


def match_expression(terms: Iterable[Term]) -> str:
    """Terms as `match_query` writes them."""
    return " OR ".join(f'"{term.token}"{" *" if term.prefix else ""}' for term in terms)


def normalised(text: str) -> str:
    """The text as it is compared: without case, width and the accents of Latin letters."""
    if text.isascii():
        return text.lower()
    bare = _ACCENT.sub("", unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold()))
    return unicodedata.normalize("NFKC", bare)


def _pieces(text: str) -> Iterator[str]:
    plain = normalised(text)
    return (match.group() for match in (_ASCII_WORD if plain.isascii() else _PIECE).finditer(plain))


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)]


def _terms(piece: str) -> list[Term]:
    if not _IN_RUN.match(piece):
        return [Term(_stem(piece))]
    return [Term(pair) for pair in _pairs(piece)] or [Term(piece, prefix=True)]


def _stem(word: str) -> str:
    """An English word without plural, -ed, -ing and final e, roughly as the first step of Porter's algorithm (1980).

    It need not be a word, only the same for all forms; bench/retrieval measures what it is worth.
    """
    if len(word) < 4 or not (word.isascii() and word.isalpha()):
        return word
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith("s") and word[-2] not in "su":
        word = word[:-1]
    if match := _INFLECTED.fullmatch(word):
        word = match[1]
        if word[-1] == word[-2] and word[-1] not in "lsz":
            word = word[:-1]
    return word.removesuffix("e")

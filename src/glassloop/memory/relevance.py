"""Which facts answer a question: by their words (BM25), by their vectors (cosine), or both.

A store finds candidates with an index of its own; all stores rank them here, so that they agree. Only the owner's facts
count, also for how rare a word is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from glassloop.core.errors import ConfigurationError
from glassloop.core.fulltext import Term, query_terms, tokens
from glassloop.core.fusion import fused

NEAR = 0.3
"""The cosine of two vectors from which on their texts count as near in meaning, unless said otherwise."""

_SATURATION, _LENGTH = 1.2, 0.75  # k1 and b of BM25 (Robertson and Zaragoza 2009, section 3.4)

_COMMON = frozenset(
    tokens("""
    a about after again all also am an and any are as at be been before being but by can could did do does doing don
    else ever for from get give go going got had has have having he hello help her here hi him his how i if in into is
    it its just know let ll made make may me might more most much my need no not now of off ok on one only or other our
    out over own please re s said say she should show so some such t tell than thank thanks that the their them then
    there these they this those to too up us use user users very want was we were what when where which who whom whose
    why will with would yes you your
    """)
) | {"用户", "です", "ます", "まし", "した", "から", "ある", "いる", "する", "って", "こと", "もの", "ない"}
_COMMON_CHARACTERS = frozenset(
    "的了吗呢吧啊呀嘛我你您他她它们是在有和与或就不没也都还很更最这那哪什么怎样请帮给让把被对从到为个一些可以想要会能该好谢下上说"
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fact that may answer.

    Args:
        number: names it; a later one has a higher number.
        text: what is remembered.
        vector: of the text, of the same model as the question's.
    """

    number: int
    text: str
    vector: Sequence[float] | None = None


def telling_terms(query: str) -> list[Term]:
    """What of a question tells what it is about: without words that stand in every other sentence."""
    return [term for term in query_terms(query) if not _is_common(term)]


def search_terms(query: str) -> list[Term]:
    """What to look for: the telling terms, or where there are none, all."""
    return telling_terms(query) or query_terms(query)


def ranked(
    query: str, candidates: Sequence[Candidate], count: int, *, vector: Sequence[float] | None, near: float
) -> list[int]:
    """Numbers of the candidates that answer, the best first; of equals the latest.

    Args:
        query: the question.
        candidates: all of the owner's facts that have a word of `search_terms`, and where `vector` is given, all that
            have a vector.
        count: how many facts the owner has.
        vector: of the question.
        near: the least cosine of a fact that is found by its vector.
    """
    by_words = _best_first(_by_words(search_terms(query), candidates, count))
    if vector is None:
        return by_words
    return list(fused(by_words, _best_first(_by_meaning(vector, candidates, near))))


def _best_first(scores: Mapping[int, float]) -> list[int]:
    return sorted(scores, key=lambda number: (-scores[number], -number))


def _by_words(terms: Sequence[Term], candidates: Iterable[Candidate], count: int) -> dict[int, float]:
    found = {candidate.number: tokens(candidate.text) for candidate in candidates}
    average = sum(map(len, found.values())) / len(found) if found else 1.0
    scores: dict[int, float] = {}
    for term in terms:
        often = {number: often for number, words in found.items() if (often := _occurrences(term, words))}
        rare = math.log(1 + (count - len(often) + 0.5) / (len(often) + 0.5))
        for number, times in often.items():
            length = 1 - _LENGTH + _LENGTH * len(found[number]) / average
            score = rare * times * (_SATURATION + 1) / (times + _SATURATION * length)
            scores[number] = scores.get(number, 0.0) + score
    return scores


def _occurrences(term: Term, words: Sequence[str]) -> int:
    return sum(word.startswith(term.token) for word in words) if term.prefix else words.count(term.token)


def _by_meaning(vector: Sequence[float], candidates: Iterable[Candidate], near: float) -> dict[int, float]:
    try:
        import numpy as np
    except ImportError as error:
        raise ConfigurationError(
            "Facts by vectors need numpy: install glassloop[rag], or unset EMBEDDING_MODEL to find them by words alone."
        ) from error
    asked = np.asarray(vector, np.float32)
    known = [(each.number, each.vector) for each in candidates if each.vector is not None]
    known = [(number, own) for number, own in known if len(own) == len(asked)]
    if not known:
        return {}
    matrix = np.asarray([own for _, own in known], np.float32)
    lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(asked)
    cosines = matrix @ asked / np.where(lengths == 0, 1, lengths)
    return {number: float(cosine) for (number, _), cosine in zip(known, cosines, strict=True) if cosine >= near}


def _is_common(term: Term) -> bool:
    return term.token in _COMMON or set(term.token) <= _COMMON_CHARACTERS

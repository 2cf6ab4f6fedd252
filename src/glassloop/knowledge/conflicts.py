"""Sources that disagree: passages that give different values for the same thing.

A value with a unit (quantities.py) is about the clause that it stands in; where that has too few words, also about
the clause beside it and the heading. Two clauses are about the same thing if enough of their words are the same, and
they do not differ just in a word that names it (standard delivery, express delivery). Words are all that counts: the
same said in quite other words, or in another language, is not seen.

Measured on the 72 pairs that are marked "held" in tests/knowledge/conflicts.jsonl, half of them contradictions and half
Chinese, written before the rules and only counted: recall 0.75, false positives 0.06 (2 of 36). Of 3,186 pairs of
statements about different things none is taken for a contradiction.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import islice

from glassloop.core.fulltext import normalised
from glassloop.knowledge.documents import Passage
from glassloop.knowledge.quantities import Quantity, quantities

# Words count 1 and Chinese characters 0.5; chosen on the pairs that are marked "dev" in tests/knowledge/conflicts.jsonl
_ALIKE = 0.6  # share of both clauses' words that are in both
_VERY_ALIKE = 0.85
_SHARED = 1.5  # of fewer common words nearly all must be
_ENOUGH = 2.0  # a clause with fewer words is read with what is beside it
_MOST_VALUES = 6  # a clause with more is a list or a row of a table, and no statement
_MOST_CLAIMS = 30  # of a passage; what gives more values is a table
_VALUE = "\0"
_SENTENCE = re.compile(r"[^。！？!?\n]+?(?:[。！？!?\n]|\.(?=\s|$)|$)")
_CLAUSE = re.compile(r"[^，、；;,]+(?:,(?=\d)[^，、；;,]+)*")
_WORD = re.compile(r"\0|[a-z]+|\d+|[\u3400-\u9fff]")
_STOP_WORDS = (
    "a an the of to in on at by for with from is are be been was were will would can could may might must shall should "
    "do does has have had it its they them this that these those we you he she i your our their my us up within about "
    "after before into as and or not no if then than when which who all each every only same per get gets take takes "
    "free just usually normally typically generally approximately around now"
)
_STOP = frozenset(_STOP_WORDS.split())
_STOP_HAN = frozenset("的了在是为于和与或及由从到对以可能会需须得要将已也只仅就都再才您你我们其该此这那每最多至后内")
_FILLERS = re.compile("一般|通常|大约|左右|一共|自动|目前|不得")


@dataclass(frozen=True, slots=True)
class Conflict:
    """Another source that says otherwise.

    Args:
        value: what the passage says, as it stands there: `48 hours`.
        source: the other source.
        other: what that one says: `24小时`.
        sentence: where it says so.
        title: title of the other source.
        position: of the other passage in its document.
    """

    value: str
    source: str
    other: str
    sentence: str
    title: str = ""
    position: int = 0


@dataclass(frozen=True, slots=True)
class _Claim:
    """A value and the words that say of what."""

    quantity: Quantity
    value: str
    words: tuple[str, ...]
    sentence: str


def find_conflicts(hits: Sequence[Passage], others: Sequence[Passage]) -> dict[int, tuple[Conflict, ...]]:
    """Where passages of other sources give other values than `hits` do.

    Returns:
        For each index of a hit that is contradicted, by whom; each source is named once for a value.
    """
    found: dict[int, tuple[Conflict, ...]] = {}
    for at, hit in enumerate(hits):
        against = {
            (conflict.value, conflict.source): conflict
            for other in others
            if other.source != hit.source
            for conflict in _between(hit, other)
        }
        if against:
            found[at] = tuple(against.values())
    return found


def _between(one: Passage, other: Passage) -> Iterator[Conflict]:
    if _names_another(_words(one.title), _words(other.title)) or _names_another(_heading(one), _heading(other)):
        return
    for claim in _claims(one.text, one.headings):
        same = [each for each in _claims(other.text, other.headings) if _same_subject(claim, each)]
        against = next((each for each in same if claim.quantity.contradicts(each.quantity)), None)
        agreed = any(
            each.quantity.kind == claim.quantity.kind and not claim.quantity.contradicts(each.quantity) for each in same
        )
        if against is not None and not agreed:
            yield Conflict(claim.value, other.source, against.value, against.sentence, other.title, other.position)


def _heading(passage: Passage) -> list[str]:
    return _words(passage.headings[-1]) if passage.headings else []


@lru_cache(maxsize=512)
def _claims(text: str, headings: tuple[str, ...]) -> tuple[_Claim, ...]:
    plain = unicodedata.normalize("NFKC", text)
    claims = (claim for match in _SENTENCE.finditer(plain) for claim in _claims_of(match.group().strip(), headings))
    return tuple(islice(claims, _MOST_CLAIMS))


def _claims_of(sentence: str, headings: tuple[str, ...]) -> Iterator[_Claim]:
    clauses = [(clause.group(), quantities(clause.group())) for clause in _CLAUSE.finditer(sentence)]
    for at, (clause, found) in enumerate(clauses):
        for quantity in found if len(found) <= _MOST_VALUES else ():
            words = _words(clause[: quantity.start] + _VALUE + clause[quantity.end :])
            for near in (at - 1, at + 1):
                if _weight(words) < _ENOUGH and 0 <= near < len(clauses):
                    beside, others = clauses[near]
                    if all(other.kind != quantity.kind for other in others):
                        words = _words(beside) + words if near < at else words + _words(beside)
            if _weight(words) < _ENOUGH and headings:
                words = _words(unicodedata.normalize("NFKC", headings[-1])) + words
            yield _Claim(quantity, clause[quantity.start : quantity.end].strip(), tuple(words), sentence)


def _words(text: str) -> list[str]:
    """The words that carry meaning, English ones by their stems, Chinese ones character by character."""
    words = (match.group() for match in _WORD.finditer(_FILLERS.sub("", normalised(text))))
    return [_stem(word) for word in words if word not in _STOP and word not in _STOP_HAN]


def _stem(word: str) -> str:
    """Good enough to see `refund` in `refunded`: the ending goes, then all but the first seven letters."""
    for ending in ("ations", "ation", "ings", "ing", "ies", "ied", "ed", "es", "s", "ly", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word.removesuffix(ending)[:7]
    return word[:7]


def _weight(words: Sequence[str] | set[str]) -> float:
    return sum(0.0 if word == _VALUE else 1.0 if word.isascii() else 0.5 for word in words)


def _same_subject(one: _Claim, other: _Claim) -> bool:
    if one.quantity.kind != other.quantity.kind:
        return False
    mine, theirs = set(one.words) - {_VALUE}, set(other.words) - {_VALUE}
    shared = _weight(mine & theirs)
    everything = _weight(mine) + _weight(theirs)
    needed = _ALIKE if shared >= _SHARED else _VERY_ALIKE
    return bool(shared) and 2 * shared >= needed * everything and not _names_another(one.words, other.words)


def _names_another(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two texts are the same but for a word in the same place: two things of a kind, not one thing."""
    mine, theirs = set(one), set(other)
    changes = SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    if not mine & theirs - {_VALUE}:
        return False
    for kind, start, end, from_, to in changes:
        ours, others = one[start:end], other[from_:to]
        if kind == "replace" and _VALUE not in (*ours, *others) and not (set(ours) & theirs or set(others) & mine):
            return True
    return False

"""Knowledge for a command: opened, searched, shown."""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

from glassloop.cli.background import Background
from glassloop.cli.printable import printable
from glassloop.cli.recorded import is_missing

if TYPE_CHECKING:
    from glassloop.knowledge.documents import Passage
    from glassloop.knowledge.index import Source
    from glassloop.knowledge.knowledge import Hit, Knowledge

_WORD = re.compile(r"[^\W_]+")
_FOUND = "1;32"
_CLOSE_S = 2.0


@contextmanager
def opened(url: str, collection: str, background: Background) -> Generator[Knowledge]:
    """The collection in the database at `url`, closed at the end.

    What was put is on disk by then. Only a command that was interrupted may leave something behind that waits for
    another process: it is undone.

    Raises:
        ConfigurationError: no such kind of database, or it cannot be used.
    """
    from glassloop.knowledge.knowledge import Knowledge

    knowledge = Knowledge(url, collection=collection)
    background.call(knowledge.__aenter__())
    try:
        yield knowledge
    finally:
        with suppress(TimeoutError):
            background.start(knowledge.close()).result(_CLOSE_S)


def list_sources(url: str, collection: str) -> tuple[list[Source], list[str]]:
    """The documents of a collection, and the names of all collections; a file that does not exist holds none."""
    if is_missing(url):
        return [], []
    with Background() as background, opened(url, collection, background) as knowledge:
        return background.call(knowledge.sources()), background.call(knowledge.collections())


def find(url: str, collection: str, query: str, limit: int) -> list[Hit]:
    """The passages that fit best; a file that does not exist holds none."""
    if is_missing(url):
        return []
    with Background() as background, opened(url, collection, background) as knowledge:
        return background.call(knowledge.search(query, limit))


def forget(url: str, collection: str, source: str) -> tuple[int, list[str]]:
    """Forget a document: how many passages it had, and the sources that are left where there was none."""
    if is_missing(url):
        return 0, []
    with Background() as background, opened(url, collection, background) as knowledge:
        passages = background.call(knowledge.remove(source))
        left = [] if passages else background.call(knowledge.sources())
        return passages, [each.source for each in left]


def print_sources(sources: Sequence[Source]) -> None:
    """One line per document."""
    from glassloop.cli.tables import print_table

    names = ("SOURCE", "PASSAGES", "CHARACTERS", "ADDED", "TITLE")
    rows = [(each.source, f"{each.passages:,}", f"{each.characters:,}", _day(each), each.title) for each in sources]
    print_table(names, rows, numbers=names[1:3], colour=False)


def print_hits(hits: Sequence[Hit], query: str, *, colour: bool) -> None:
    """The passages with their places, and below each what other sources say otherwise.

    Args:
        hits: best first.
        query: its words are highlighted.
        colour: whether to highlight anything.
    """
    from glassloop.core.fulltext import query_terms

    wanted = {term.token for term in query_terms(query)}
    for number, hit in enumerate(hits, 1):
        passage = hit.passage
        above = " > ".join(passage.headings) or ("" if passage.source.endswith(passage.title) else passage.title)
        place = _styled(f"{passage.source}{_place(passage)}", "1", colour)
        lines = [f"{number}. {place}{f'  {printable(above)}' if above else ''}"]
        lines += [f"   {_highlighted(printable(line), wanted, colour)}" for line in passage.text.split("\n")]
        for each in hit.conflicts:
            says = f"Conflict: {each.value} here, but {each.source} says {each.other}: {each.sentence}"
            lines.append(f"   {_styled(says, '33', colour)}")
        sys.stdout.write("\n".join(lines) + ("\n\n" if number < len(hits) else "\n"))


def hit_as_dict(hit: Hit) -> dict[str, Any]:
    """What `--json` prints of a passage that was found."""
    from dataclasses import asdict

    passage = {name: value for name, value in asdict(hit.passage).items() if name != "digest"}
    return {**passage, "score": hit.score, "conflicts": [asdict(each) for each in hit.conflicts]}


def _day(source: Source) -> str:
    return datetime.fromtimestamp(source.added_at / 1000).strftime("%Y-%m-%d %H:%M")


def _place(passage: Passage) -> str:
    """Where in the source, as editors and readers write it."""
    if passage.page is not None:
        return f", page {passage.page}"
    if passage.line is None:
        return ""
    table = passage.source.lower().endswith((".csv", ".tsv"))
    return f", row {passage.line}" if table else f":{passage.line}"


def _highlighted(line: str, wanted: set[str], colour: bool) -> str:
    """A line with the words, and pieces of runs of Chinese and its like, that were looked for."""
    if not colour:
        return line
    return _WORD.sub(lambda word: "".join(_pieces(word.group(), wanted)), line)


def _pieces(word: str, wanted: set[str]) -> Iterator[str]:
    from glassloop.core.fulltext import tokens

    found = tokens(word)
    if len(found) == 1:
        yield _styled(word, _FOUND, found[0] in wanted)
        return
    marked: set[int] = set()
    for at, character in enumerate(word):
        if wanted.intersection(tokens(word[at : at + 2])[:1]):
            marked |= {at, at + 1}
        elif character in wanted:
            marked.add(at)
    for is_marked, places in groupby(range(len(word)), marked.__contains__):
        yield _styled("".join(word[at] for at in places), _FOUND, is_marked)


def _styled(text: str, code: str, colour: bool) -> str:
    plain = printable(text)
    return f"\x1b[{code}m{plain}\x1b[0m" if colour else plain

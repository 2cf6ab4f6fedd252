"""Texts that others wrote and that are on the machine already, and questions made from them by rule.

The rule is known-item search. Of a paragraph, the first sentence is the question, and what is left of it is the
passage that should be found; of a section, the heading is the question and the text below it the passage. So a question
is never indexed itself. Paragraphs that make no question are passages all the same, to be mistaken for the right one.
"""

import gzip
import json
import pydoc_data.topics
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

SEED = 20260101
MOST_WORDS = 400
_SHORTEST = {"en": 60, "zh": 12}
"""Characters of a passage; what is shorter says too little to be looked for."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked and which passages answer it."""

    text: str
    answers: frozenset[int]


@dataclass(frozen=True)
class Corpus:
    """Passages and the questions about them.

    Args:
        name: of the task.
        language: `en` or `zh`.
        source: where the text is from.
        passages: the texts.
        questions: about them.
    """

    name: str
    language: str
    source: str
    passages: list[str]
    questions: list[Question]


def corpora() -> Iterator[Corpus]:
    """All tasks that this machine has texts for."""
    topics = "Python's language reference (`pydoc_data.topics`)"
    yield _known_items("first sentence", "en", topics, _python_paragraphs(), [])
    yield _known_items("heading", "en", topics, [], list(_python_sections()))
    places, paragraphs, sections = _chinese()
    if paragraphs or sections:
        yield _known_items("first sentence or heading", "zh", places, paragraphs, sections)
    messages = list(_pyright_messages())
    if messages:
        yield _words("two-character word", "zh", "pyright's messages in Chinese", messages)


def _known_items(
    name: str, language: str, source: str, paragraphs: list[str], sections: list[tuple[str, str]]
) -> Corpus:
    passages: list[str] = []
    questions: list[Question] = []
    for question, rest in [*map(_first_sentence, paragraphs), *sections]:
        if len(rest) < _SHORTEST[language]:
            continue
        if question:
            questions.append(Question(question, frozenset([len(passages)])))
        passages.append(rest)
    return Corpus(name, language, source, passages, questions)


def _words(name: str, language: str, source: str, passages: list[str]) -> Corpus:
    """Questions of two characters that stand in one to five passages; all of these are the answer."""
    found: dict[str, set[int]] = {}
    for number, passage in enumerate(passages):
        for run in re.findall(r"[\u4e00-\u9fff]+", passage):
            for at in range(len(run) - 1):
                found.setdefault(run[at : at + 2], set()).add(number)
    rare = sorted(pair for pair, places in found.items() if len(places) <= 5)
    chosen = random.Random(SEED).sample(rare, min(MOST_WORDS, len(rare)))
    return Corpus(name, language, source, passages, [Question(pair, frozenset(found[pair])) for pair in chosen])


def _first_sentence(paragraph: str) -> tuple[str, str]:
    """The first sentence and the rest; an empty question where there is only one."""
    parts = re.split(r"(?<=[。！？；])|(?<=[.!?])\s+(?=[A-Z\"'`*(])", paragraph, maxsplit=1)
    return (parts[0].strip(), parts[1].strip()) if len(parts) == 2 and parts[1].strip() else ("", paragraph)


# English


def _python_paragraphs() -> list[str]:
    paragraphs: list[str] = []
    for text in pydoc_data.topics.topics.values():
        for block in re.split(r"\n\s*\n", text):
            lines = block.strip().splitlines()
            if lines and not block.startswith("   ") and not _is_underline(lines[-1]):
                paragraphs.append(" ".join(line.strip() for line in lines))
    return list(dict.fromkeys(paragraphs))


def _python_sections() -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for text in pydoc_data.topics.topics.values():
        blocks = re.split(r"\n\s*\n", text)
        heads = [number for number, block in enumerate(blocks) if _is_heading(block)]
        for start, end in zip(heads, [*heads[1:], len(blocks)], strict=True):
            heading = blocks[start].strip().splitlines()[0]
            body = " ".join(" ".join(blocks[start + 1 : end]).split())
            if heading not in seen and body:
                seen.add(heading)
                yield heading, body


def _is_heading(block: str) -> bool:
    lines = block.strip().splitlines()
    return len(lines) == 2 and _is_underline(lines[1])


def _is_underline(line: str) -> bool:
    return bool(re.fullmatch(r"([*=\-~^\"])\1{2,}", line.strip()))


# Chinese


def _chinese() -> tuple[str, list[str], list[tuple[str, str]]]:
    """Names of what there is, its paragraphs, and its sections with their headings."""
    tutor, gnupg, manuals = list(_tutor()), list(_gnupg()), list(_manuals())
    found = {"Vim's tutor": tutor, "GnuPG's help": gnupg, "manual pages": manuals}
    return ", ".join(name for name, items in found.items() if items), list(dict.fromkeys(gnupg + manuals)), tutor


def _tutor() -> Iterator[tuple[str, str]]:
    """The lessons of `vimtutor`, with their titles."""
    for path in sorted(Path("/usr/share/vim").glob("vim*/tutor/tutor.zh_cn.utf-8")):
        parts = re.split(r"^\s*第.讲第.节：(.*)$", path.read_text("utf-8"), flags=re.MULTILINE)
        for title, body in zip(parts[1::2], parts[2::2], strict=True):
            yield title.strip(), " ".join(re.sub(r"[~=]{5,}", "", body).split())


def _gnupg() -> Iterator[str]:
    """The answers that GnuPG gives to `?`."""
    path = Path("/usr/share/gnupg/help.zh_CN.txt")
    text = path.read_text("utf-8") if path.exists() else ""
    for entry in re.split(r"^\.gpg\S*\n", text, flags=re.MULTILINE)[1:]:
        yield from (_joined(block) for block in re.split(r"\n\s*\n|^\.$", entry, flags=re.MULTILINE) if block.strip())


def _manuals() -> Iterator[str]:
    """Paragraphs of the system's manual pages in Chinese."""
    for path in sorted(Path("/usr/share/man/zh_CN").glob("man*/*.gz")):
        if path.is_symlink():
            continue
        text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        for block in re.split(r"^[.'].*$|\n\s*\n", text, flags=re.MULTILINE):
            plain = _joined(
                re.sub(r"\\f\[?\w+\]?|\\[&|^/]|\\\*\[.*?\]", "", block).replace("\\-", "-").replace("\\ ", " ")
            )
            if len(re.findall(r"[\u4e00-\u9fff]", plain)) >= _SHORTEST["zh"]:
                yield plain


def _pyright_messages() -> Iterator[str]:
    """What pyright says in simplified Chinese, where it is installed."""
    spec = find_spec("pyright")
    script = Path(spec.origin or "").parent / "dist/dist/pyright-internal.js" if spec else Path()
    text = script.read_text("utf-8") if script.is_file() else ""
    for start in re.finditer(r"JSON\.parse\('", text):
        written = text[start.end() : text.index("')", start.end())]
        if "类型" in written and "参数" in written:
            groups = json.loads(re.sub(r"\\(['\\])", r"\1", written))
            for group in groups.values():
                yield from (message for message in group.values() if isinstance(message, str))


def _joined(block: str) -> str:
    """Lines as one, without a blank between two Chinese characters."""
    return re.sub(r"(?<=[\u3000-\uffef])\s+(?=[\u3000-\uffef])", "", " ".join(block.split()))

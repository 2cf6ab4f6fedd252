"""Docstrings of Google, NumPy, Sphinx and Epydoc style: what describes the tool, and what describes its parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_PARAMETER_TITLES = frozenset(
    f"{before}{what}"
    for before in ("", "keyword ", "other ", "optional ", "input ")
    for what in ("args", "arguments", "parameters", "params")
) | {"kwargs", "参数", "參數"}
_LEFT_OUT_TITLES = frozenset(
    {"returns", "return", "yields", "yield", "raises", "raise", "except", "exceptions", "warns", "attributes"}
    | {"todo", "返回", "返回值", "异常"}
)
_KEPT = (["notes"], ["note"], ["warnings"], ["warning"])
_HEADING = re.compile(r"([^\s:：][^:：]*?)\s*[:：]\s*")
_ENTRY = re.compile(r"(?:[-*]\s+)?([`*\w][`*\w, ]*?)\s*(?:[(（].*?[)）]\s*)?(?:[:：]|\s--?\s)\s*(.*)")
_NUMPY = re.compile(r"^(?:Other )?(?:Parameters|Params|Arguments|Args|Returns|Raises|Yields)\s*\n-{3,}\s*$", re.M)
_OF_PARAMETERS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})
_SPHINX = re.compile(
    r"^:(param|parameter|arg|argument|key|keyword|type|returns?|rtype|raises?|except|exception|yields?|ytype)"
    r"\b([^\n]*?):(?:[ \t]+(.*))?$",
    re.M,
)
_EPYDOC = re.compile(r"^@(?:param|type|return|rtype|raise)\b[^\n]*?:", re.M)


@dataclass(frozen=True)
class Documentation:
    """What a docstring says.

    Args:
        description: summary and details, without the sections on parameters, results and exceptions.
        parameters: description of each parameter that has one.
    """

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict[str, str])


def read_docstring(docstring: str | None) -> Documentation:
    """Read a docstring of any style; a text of none is all description, and nothing is ever raised."""
    text = inspect.cleandoc(docstring or "")
    if _NUMPY.search(text):
        return _library(text, "NUMPYDOC")
    if _SPHINX.search(text):
        return _sphinx(text)
    if _EPYDOC.search(text):
        return _library(text, "EPYDOC")
    return _google(text)


def _library(text: str, style: str) -> Documentation:
    """Heavy to import, so only for the styles that need it."""
    from docstring_parser import DocstringStyle, ParseError, parse

    try:
        parsed = parse(text, DocstringStyle[style])
    except ParseError:
        return Documentation(text.partition("\n\n")[0])
    notes = (meta.description for meta in parsed.meta if meta.args[:1] in _KEPT)
    description = "\n\n".join(filter(None, (parsed.short_description, parsed.long_description, *notes)))
    described = ((parameter.arg_name, parameter.description or "") for parameter in parsed.params)
    return Documentation(description, _by_name(described))


def _sphinx(text: str) -> Documentation:
    """Field lists; a type may stand before the name and hold blanks (`:param dict[str, int] counts:`)."""
    prose: list[str] = []
    entries: list[tuple[str, list[str]]] = []
    block: list[str] | None = None
    for line in text.splitlines():
        if found := _SPHINX.match(line):
            block = [found[3] or ""]
            if found[1] in _OF_PARAMETERS and found[2].strip():
                entries.append((found[2].split()[-1], block))
        elif block is None or (line[:1].strip() and not block[-1].strip()):
            block = None
            prose.append(line)
        else:
            block.append(line)
    return Documentation("\n".join(prose).strip(), _by_name((name, "\n".join(lines)) for name, lines in entries))


def _google(text: str) -> Documentation:
    prose: list[str] = []
    entries: list[tuple[str, str]] = []
    for title, lines in _sections(text.splitlines()):
        if title in _PARAMETER_TITLES:
            entries += _entries(lines)
        elif title not in _LEFT_OUT_TITLES:
            prose += lines
    return Documentation("\n".join(prose).strip(), _by_name(entries))


def _sections(lines: list[str]) -> Iterator[tuple[str | None, list[str]]]:
    """Each run of lines with the known heading above it, which is not among them; prose has None."""
    title: str | None = None
    block: list[str] = []
    for line in lines:
        heading = _known_heading(line)
        if heading or (title and line[:1].strip() and not (title in _PARAMETER_TITLES and _is_flush(line, block))):
            yield title, block
            title, block = heading, ([] if heading else [line])
        else:
            block.append(line)
    yield title, block


def _is_flush(line: str, block: list[str]) -> bool:
    """Whether a line is an entry of a section that is not indented, with no blank line in it."""
    return _ENTRY.fullmatch(line) is not None and (not block or bool(block[0][:1].strip() and block[-1].strip()))


def _known_heading(line: str) -> str | None:
    found = _HEADING.fullmatch(line)
    title = found[1].lower() if found else None
    return title if title in _PARAMETER_TITLES or title in _LEFT_OUT_TITLES else None


def _entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    """`name (type): text` with its deeper-indented continuation lines, for each entry of a section."""
    indent = min((_indent(line) for line in lines if line.strip()), default=0)
    names, text = "", ""
    for line in lines:
        entry = _ENTRY.fullmatch(line.strip()) if _indent(line) == indent else None
        if entry:
            yield names, text
            names, text = entry[1], entry[2]
        else:
            text = f"{text}\n{line.strip()}"
    yield names, text


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _by_name(entries: Iterable[tuple[str, str]]) -> dict[str, str]:
    described: dict[str, str] = {}
    for names, text in entries:
        for name in names.split(","):
            described.setdefault(name.strip(" *`\\"), _paragraphs(text))
    return {name: text for name, text in described.items() if name and text}


def _paragraphs(text: str) -> str:
    return "\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()))

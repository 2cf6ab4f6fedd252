"""Tool calls that a model wrote as text, in the dialects of chat templates, of JSON, of Python and of agents' prompts.

They tell such a reply from an answer, and nothing more: nothing found in text is ever executed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, cast

from glassloop.core.encoding import loads

_TAG = (
    r"(?:[｜|]*[\w.-]{0,20}[:_｜|]+)?"
    r"(?:tool[_▁]?calls?|function_?calls?|tool_use|tool_code|invoke|(?:function|parameter)\s*(?:name\s*)?=)"
)
_MARKUP = re.compile(
    rf"(?<!`)</?{_TAG}|</?arg_(?:key|value)>"
    r"|<\|(?:python_tag|action_start|plugin|open\|>tools|channel\|>commentary)|<｜tool|\[TOOL_CALLS?\]|\[ARGS\]|✿FUNCTION✿|<tools>\s*\{"
    r"|\bto=functions\.\w|\Afunctools\[|\A(?:<[^<>\n]*>\s*)?call:\w+\s*\{|\Atool_code\s*\n"
    r"|\A\[\s*(?:tool[_ ]call|call(?:ed|ing) (?:the )?tool)\b|^[ \t]*Action[ \t]*:.*\n\s*Action Input\s*:",
    re.IGNORECASE | re.MULTILINE,
)
_BLOCK = re.compile(
    r"(?<!`)<[^<>\s]*?(tool_?calls?|function_?calls?|tool_use|invoke|function)\b[^<>]*>.*?(?:</[^<>\s]*?\1\s*>|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_TOKENS = ("<|", "<｜")  # nobody begins an explanation with them
_FENCE = "`" * 3
_FENCED = re.compile(rf"{_FENCE}(\w*)[ \t]*\n(.*?)\n?{_FENCE}", re.DOTALL)
_CODE_FENCES = ("", "json", "python", "tool", "tool_call", "tool_code")
_INTRODUCED = re.compile(rf"(?:\A|.{{0,200}}\n)\s*(?:{_FENCED.pattern}|([{{\[].*))", re.DOTALL)
_WHOLE_CALL = re.compile(
    r"""[\s\[,;]*(?:print\s*\(\s*)?(?:(?:default_api|functions|tools?)\.)?(?P<name>\w+)\s*
    \((?:[^()"']|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\([^()]*\))*\)[\s\]),;]*""",
    re.VERBOSE | re.DOTALL,
)
_LAST_TAG = re.compile(r"</(\w+)>\Z")
_NAMES = ("name", "tool", "tool_name", "function", "function_name", "recipient_name", "action")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "action_input", "tool_input")
_LISTS = ("tool_calls", "tool_uses", "function_call")
_HEAD = re.compile(
    rf'\[?\s*\{{\s*(?:"(?:id|type)"\s*:\s*"[^"]*"\s*,\s*)*"(?:{"|".join(_NAMES)})"\s*:\s*"(?P<name>[^"]+)"\s*,\s*'
    rf'"(?:{"|".join(_ARGUMENTS)})"\s*:'
)
_MOST_PROSE = 200  # characters beside a call that is no example


def call_as_text(text: str, tools: Collection[str] = (), *, json_wanted: bool = False) -> bool:
    """Whether a reply is a tool call written as text, with at most a few words before it.

    Args:
        text: the reply.
        tools: names on offer. Python code, tags named after a tool, broken JSON and JSON after a few words are calls
            only where they name one of these.
        json_wanted: JSON is the answer that is wanted, so that all JSON must name one of `tools`.
    """
    text = (_unescaped(text) if "&lt;" in text else text).strip()
    return _is_markup(text) or _is_tag(text, tools) or _is_code(text, tools) or _is_json(text, tools, json_wanted)


def _unescaped(text: str) -> str:
    from html import unescape  # with its table of two thousand names

    return unescape(text)


def _is_markup(text: str) -> bool:
    found = _MARKUP.search(text)
    if found is None:
        return False
    outside = _BLOCK.sub("", text).strip()
    if _FENCE in outside and not text.startswith((_FENCE, *_TOKENS)):
        return False  # an example
    return found.start() == 0 or len(outside) < _MOST_PROSE or _ends_in_block(text)


def _ends_in_block(text: str) -> bool:
    blocks = [block for block in _BLOCK.finditer(text) if block.end() == len(text)]
    return any(text[: block.start()].endswith("\n") for block in blocks)


def _is_tag(text: str, tools: Collection[str]) -> bool:
    """Whether a text ends in a tag that is named after a tool, begun on a line of its own."""
    tag = _LAST_TAG.search(text)
    if tag is None or tag[1] not in tools:
        return False
    before, begun, _ = f"\n{text}".partition(f"\n<{tag[1]}>")
    return bool(begun) and _FENCE not in before


def _is_code(text: str, tools: Collection[str]) -> bool:
    """Whether all of a text is calls of tools in Python."""
    fenced = _FENCED.fullmatch(text)
    code = fenced[2] if fenced and fenced[1] in _CODE_FENCES else text
    position = 0
    while position < len(code):
        call = _WHOLE_CALL.match(code, position)
        if call is None or call["name"] not in tools:
            return False
        position = call.end()
    return position > 0


def _is_json(text: str, tools: Collection[str], wanted: bool) -> bool:
    for json, alone in _pieces(text):
        values = _values(json)
        known = tools if wanted or not alone else None
        if values and all(_looks_like_call(value, known) for value in values):
            return True
        head = _HEAD.match(json)
        if not values and head is not None and _bare(head["name"]) in tools:
            return True
    return False


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """What may be JSON: all of the text, or its end after a few words; in a fence or not. And whether it is alone."""
    found = _INTRODUCED.fullmatch(text)
    if found is not None:
        fence, fenced, bare = found.groups()
        alone = text.startswith(("{", "[", _FENCE))
        if bare is not None:
            yield bare, alone
        elif fence in _CODE_FENCES:
            yield fenced.strip(), alone


def _values(json: str) -> list[Any]:
    """The JSON values of a text: one, the items of one array, or one a line."""
    try:
        value: Any = loads(json)
    except ValueError:
        try:
            return [loads(line) for line in json.splitlines() if line.strip()]
        except ValueError:
            return []
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _looks_like_call(item: Any, tools: Collection[str] | None) -> bool:
    if not isinstance(item, dict):
        return False
    outer = cast("dict[str, Any]", item)
    for key in _LISTS:
        if isinstance(inside := outer.get(key), list | dict):
            calls = cast("list[Any]", inside if isinstance(inside, list) else [inside])
            return bool(calls) and all(_looks_like_call(one, tools) for one in calls)
    inner = cast("dict[str, Any]", outer["function"]) if isinstance(outer.get("function"), dict) else outer
    names = [str(inner[key]) for key in _NAMES if isinstance(inner.get(key), str)]
    named = bool(names) if tools is None else any(_bare(name) in tools for name in names)
    return named and any(key in inner for key in _ARGUMENTS)


def _bare(name: str) -> str:
    return name.removeprefix("functions.")

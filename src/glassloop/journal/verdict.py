"""Whether a reply without tool calls is an answer.

Models say "let me look that up" and call nothing, or write the call as text. Both are told apart from an answer here,
by wording alone; nothing found in text is ever executed.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, cast

from glassloop.core.encoding import loads
from glassloop.core.messages import Reply

_MARKUP = re.compile(
    r"<\s*/?\s*(tool_calls?|function_calls?|tool_use|invoke|function\s*=)"
    r"|\[TOOL_CALLS\]|<\|(python_tag|tool_call|tool▁call|channel\|>commentary)|<｜tool",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^```(?:json|tool_call|tool|python)?\s*\n(.*?)\n?```$", re.DOTALL)
_VERBS = (
    "look|check|search|find|fetch|get|query|retrieve|calculate|compute|call|use|run|pull|see|review|verify|"
    "gather|open|read|create|send|book|investigate"
)
_PROMISE = re.compile(
    r"\b(?:let me|let's|i(?:'|’)ll|i will|i(?:'|’)m going to|i am going to|i(?:'|’)m now|i need to|allow me to)"
    rf"\s+(?:now |first |just |quickly |go ahead and |try to )?(?:{_VERBS})(?!\s+(?:you\b|forward))\b"
    r"|\b(?:one|just a) moment\b|\bhold on\b|\bplease wait\b"
    r"|(?:让我|我来|我去|我将|我会|我先|我这就|我现在|我需要先?|正在|稍等|请稍候|马上)(?:[^。！？\n]{0,8}?)"
    r"(?:查|搜|找|看看|获取|调用|计算|算|检索|确认|核实|创建|提交|为您处理|处理)"
    r"|(?:请)?稍(?:等|候)",
    re.IGNORECASE,
)
_OFFER = re.compile(
    r"\b(?:if you|would you like|do you want|shall i|should i|could you|can you|let me know)\b"
    r"|\?|？|如果|需要我|是否|吗",
    re.I,
)
_LONGEST_PROMISE = 1_200
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？:：…]*")


def call_as_text(text: str, tools: Collection[str] | None = None) -> bool:
    """Whether the whole reply is a tool call written as text: markup of a chat template, or a bare JSON call.

    Where JSON is the answer that is wanted, `tools` are the only ones that a bare call may name.
    """
    stripped = text.strip()
    if _MARKUP.match(stripped) or (_MARKUP.search(stripped) and len(_outside_markup(stripped)) < 200):
        return "```" not in stripped or stripped.startswith("```")
    fenced = _FENCE.match(stripped)
    return _is_call(fenced.group(1) if fenced else stripped, tools)


def promises(text: str) -> bool:
    """Whether the reply ends by promising an action instead of giving an answer.

    Its last sentence counts (of two, also the first, unless the last holds a figure), and only when it neither asks nor
    offers: "I'll check that now." does, "Let me know if I should check." does not.
    """
    sentences = [sentence.strip() for sentence in _SENTENCE.findall(text) if sentence.strip(" \n\t*_`")]
    if not sentences or len(text) > _LONGEST_PROMISE:
        return False
    last = sentences[-1]
    telling = sentences if len(sentences) == 2 and not re.search(r"\d", last) else [last]
    return not _OFFER.search(last) and any(_PROMISE.search(sentence) for sentence in telling)


def is_empty(reply: Reply) -> bool:
    """Whether the reply says nothing (thinking alone is nothing to a user)."""
    return not reply.text.strip()


def _outside_markup(text: str) -> str:
    return re.sub(r"<(tool_call|function_call|tool_use)\b.*?(?:</\1>|$)", "", text, flags=re.DOTALL | re.I).strip()


def _is_call(text: str, tools: Collection[str] | None) -> bool:
    if not text.startswith(("{", "[")):
        return False
    try:
        value: Any = loads(text)
    except ValueError:
        return False
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    return bool(items) and all(_looks_like_call(item, tools) for item in items)


def _looks_like_call(item: Any, tools: Collection[str] | None) -> bool:
    if not isinstance(item, dict):
        return False
    outer = cast("dict[str, Any]", item)
    inner = cast("dict[str, Any]", outer["function"]) if isinstance(outer.get("function"), dict) else outer
    names = [inner[key] for key in ("name", "tool", "tool_name", "action") if isinstance(inner.get(key), str)]
    named = bool(names) if tools is None else any(name in tools for name in names)
    return named and any(key in inner for key in ("arguments", "parameters", "args", "input", "action_input"))

"""Whether a reply without tool calls is an answer: models say "let me look that up" and call nothing."""

from __future__ import annotations

import re

from glassloop.core.blank import is_blank
from glassloop.core.messages import Reply

_VERBS = (
    "look|check|search|find|fetch|get|query|retrieve|calculate|compute|call|use|run|pull|see|review|verify|"
    "gather|open|read|create|send|book|investigate|inspect|examine|explore|execute|install|download|delete|submit"
)
_PROMISE = re.compile(
    r"\b(?:let me|let's|i(?:'|’)ll|i will|i(?:'|’)m going to|i am going to|i(?:'|’)m now|i need to|allow me to)"
    rf"\s+(?:now |first |just |quickly |go ahead and |try to )?(?:{_VERBS})(?!\s+(?:you\b|forward))\b"
    r"|\b(?:one|just a) moment\b|\bhold on\b|\bplease wait\b"
    r"|(?:让我|我来|我去|我将|我会|我先|我这就|我现在|我需要先?|正在|稍等|请稍候|马上|接下来)(?:[^。！？\n]{0,8}?)"
    r"(?:查|搜|找|看看|获取|调用|计算|算|检索|确认|核实|创建|提交|为您处理|处理|读取|打开|执行|运行|下载|删除)"
    r"|(?:请)?稍(?:等|候)",
    re.IGNORECASE,
)
_ANNOUNCEMENT = re.compile(
    r"^\W*(?:(?:ok(?:ay)?|sure|now|next|first)\b\W*)*[a-z]+ing\b|(?:[:：…]|\.\.\.)[\s*_`]*$"
    r"|\b(?:let me|let's|i(?:'|’)ll|i will|i(?:'|’)m going to|i am going to|i need to|allow me to)\b"
    r"|(?:让我|我来|我去|我将|我会|我先|我这就|我现在|正在|马上|接下来|下面)",
    re.IGNORECASE,
)
_OFFER = re.compile(
    r"\b(?:if you|would you like|do you want|shall i|should i|could you|can you|let me know)\b"
    r"|\?|？|如果|需要我|是否|吗",
    re.I,
)
_TO_BE_CONTINUED = re.compile(r"[:：][\s*_]*\Z")
_LONGEST_PROMISE = 1_200
_LONGEST_LEAD_IN = 200
_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？:：…]*")


def promises(text: str) -> bool:
    """Whether the reply ends by promising an action instead of giving an answer.

    Its last sentence counts (of two, also the first, unless the last holds a figure), and only when it neither asks nor
    offers: "I'll check that now." does, "Let me know if I should check." does not. A few words that end in a colon
    promise what should have followed them.
    """
    sentences = [sentence.strip() for sentence in _SENTENCE.findall(text) if sentence.strip(" \n\t*_`")]
    if not sentences or len(text) > _LONGEST_PROMISE:
        return False
    last = sentences[-1]
    telling = sentences if len(sentences) == 2 and not re.search(r"\d", last) else [last]
    leads_in = len(text) <= _LONGEST_LEAD_IN and _TO_BE_CONTINUED.search(text)
    return not _OFFER.search(last) and (bool(leads_in) or any(_PROMISE.search(sentence) for sentence in telling))


def announces(text: str) -> bool:
    """Whether a reply that ended for a call, and holds none, reads like the words before it: "Reading the file first."

    With that said by the protocol much less has to be said by the words than in `promises`; an answer or a question is
    still one.
    """
    sentences = [sentence.strip() for sentence in _SENTENCE.findall(text) if sentence.strip(" \n\t*_`")]
    if not sentences or len(text) > _LONGEST_PROMISE:
        return False
    return not _OFFER.search(sentences[-1]) and bool(_ANNOUNCEMENT.search(sentences[-1]))


def is_empty(reply: Reply) -> bool:
    """Whether the reply says nothing (thinking alone is nothing to a user)."""
    return is_blank(reply.text)

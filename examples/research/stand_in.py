"""The model that stands in for the research assistant when there is no key: it reads question, results and history.

It looks up what the question asks for, calculates with what it found, and answers from what stands in the passages,
with their sources. What a calculation gave earlier in the conversation it knows without any tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from glassloop.core.fulltext import tokens
from glassloop.core.messages import ToolCall
from glassloop.testing import Conversation, Reaction, ToolOutcome, ask, call

NUMBER = r"-?\d[\d,]*(?:\.\d+)?"
SIGNS = {
    "+": r"\+|plus|加上?",
    "-": r"-|−|minus|减去?",
    "*": r"[*×x]|times|multiplied by|乘以?",
    "/": r"[/÷]|divided by|除以",
}
SUM = re.compile(rf"(?<![A-Za-z\d.])({NUMBER})\s*({'|'.join(SIGNS.values())})\s*({NUMBER})", re.I)
SHARES = tuple(
    re.compile(pattern, re.I)
    for pattern in (
        rf"percent(?:age)? of (?P<total>{NUMBER}) is (?P<part>{NUMBER})",
        rf"percent(?:age)? is (?P<part>{NUMBER}) (?:out )?of (?P<total>{NUMBER})",
        rf"(?P<part>{NUMBER}) as a percentage of (?P<total>{NUMBER})",
        rf"(?P<part>{NUMBER})\s*[占是]\s*(?P<total>{NUMBER})\s*的(?:百分之|百分比)",
        rf"(?P<total>{NUMBER})\s*的百分之(?:几|多少)是\s*(?P<part>{NUMBER})",
    )
)
DAYS = (
    re.compile(r"hours\s+(?:are|is|in|make|has|have)\s+(?P<n>\d+)\s+(?P<working>working |business )?days?", re.I),
    re.compile(r"(?P<n>\d+)\s+(?P<working>working |business )?days?\s+(?:in|to|into|as)\s+hours", re.I),
    re.compile(r"(?P<n>\d+)\s*个?(?:(?P<working>工作日)|天)\s*(?:是|等于|有|合|折合|换算成)*\s*(?:多少|几)个?小时"),
)
WORKING_DAY = re.compile(r"working day\s+counts\s+as\s+(\d+)\s+hours|工作日按(\d+)小时", re.I)
TIME = (
    re.compile(
        r"\bwhat time\b|\btime is it\b|\btoday'?s date\b|\bwhat day\b|几点|今天.*(?:几号|星期几)|现在.*时间", re.I
    ),
)
ZONE = re.compile(r"\b(?:[A-Z][A-Za-z]+/[A-Z][A-Za-z_]+|UTC)\b")
RECALL = re.compile(
    r"\b(?:which|what)\b.*\b(?:we|you)\b.*\b(?:comput|calculat|work(?:ed)? out)"
    r"|\b(?:last|previous) (?:number|result|calculation)\b|刚才.*(?:算|数字|结果)|上一?[个次].*(?:算|数字|结果)",
    re.I,
)
CLAUSE = re.compile(
    r"[;.?!](?=\s|$)|[，。；？！]|,\s|\bthen\b|\band\b(?=\s+(?:how|what|which|when|where|who|is|does|do|can)\b)"
    r"|然后|接着|再(?=[算查告看])",
    re.I,
)
NOISE = re.compile(
    r"\b(?:please|look up|find out|search(?: for)?|check|tell me|can you|could you|i want to know)\b"
    r"|请问|请|帮我|麻烦|查一下|查找|查询|查|看看|告诉我",
    re.I,
)
IDLE = re.compile(
    r"\b(?:a|about|an|and|any|are|as|at|be|by|can|cost|could|did|do|does|for|from|gets?|give|had|has|have|hello|hi|how|i|if"
    r"|in|is|its?|long|many|me|much|my|need|of|on|or|our|say|says|shop|should|so|takes?|taken|thanks|than|that|the|their"
    r"|them|there|they|this|to|us|was|we|what|when|where|which|who|will|with|you|your)\b"
    r"|多长时间|多少|多长|多久|什么时候|什么|怎么样|怎么|怎样|如何|哪些|哪里|哪个|是否|能不能|可不可以|可以|能否|需要|时间|有没有"
    r"|你好|您好|谢谢|[要有吗呢啊吧的了是在和与或我你您们能]",
    re.I,
)
"""What says nothing about the subject."""
SENTENCE = re.compile(r"[^.。\n]+(?:\.(?=\S)[^.。\n]*)*[.。]?")


@dataclass(frozen=True)
class Passage:
    """A passage that a search gave; `conflicts` are the other documents that give another value."""

    source: str
    text: str
    heading: str = ""
    conflicts: Sequence[dict[str, str]] = ()

    @property
    def words(self) -> frozenset[str]:
        """What it is about."""
        return words_of(f"{self.heading} {self.text}")

    def sentence(self, wanted: frozenset[str], holding: str = "") -> str:
        """The sentence that has most of the words, of those that hold a text; first of those the heading lacks."""
        asked = wanted - words_of(f"{self.source} {self.heading}")
        found = [piece.strip() for piece in SENTENCE.findall(self.text) if holding in piece] or [self.text]
        return max(found, key=lambda piece: (len(asked & words_of(piece)), len(wanted & words_of(piece))))


@dataclass(frozen=True)
class Asked:
    """One turn: what is asked, in which language, and what is known."""

    text: str
    chinese: bool
    turn: tuple[ToolOutcome, ...]
    earlier: tuple[ToolOutcome, ...]

    def say(self, english: str, chinese: str) -> str:
        """The sentence in the language of the question."""
        return chinese if self.chinese else english

    def result(self, wanted: ToolCall) -> ToolOutcome | None:
        """What came of a call in this turn."""
        return next((done for done in self.turn if call(done.name, **done.arguments) == wanted), None)

    def missing(self, calls: Iterable[ToolCall]) -> list[ToolCall]:
        """Those calls that are still to be made."""
        return [one for one in calls if self.result(one) is None]


def brain(conversation: Conversation) -> Reaction:
    """Search first, then calculate with what was found, then answer."""
    text = conversation.user
    asked = Asked(text, bool(re.search(r"[一-鿿]", text)), conversation.results, conversation.earlier)
    if RECALL.search(text) and not SUM.search(text) and first(DAYS, text) is None:
        return remembered(asked)
    searches = searches_for(asked)
    if not conversation.tools:
        return asked.say(
            "I have no tools here: I can neither search the documents nor calculate, and I do not guess.",
            "这里没有可用的工具：我既不能检索文档，也不能计算，不作猜测。",
        )
    if missing := asked.missing(searches.values()):
        return ask(*missing, text=asked.say("I look it up in the documents.", "先检索文档。"))
    others = other_calls(asked)
    if missing := asked.missing(others):
        return ask(*missing, text=asked.say("Now the calculation.", "接下来计算。") if searches else "")
    told = [told_subject(asked, subject, asked.result(search)) for subject, search in searches.items() if subject]
    told += [told_call(asked, one, asked.result(one)) for one in others]
    return asked.say(" ", "").join(told) or asked.say(
        "I can search the shop's documents, calculate, and tell the time. What would you like to know?",
        "我可以检索店铺的文档、计算、报时。请问您想了解什么？",
    )


def remembered(asked: Asked) -> str:
    """What was computed last in the conversation: no tool is needed to know that."""
    numbers = [done for done in asked.earlier if isinstance(done.value, int | float)]
    if not numbers:
        return asked.say("We have not computed anything yet.", "我们还没有计算过。")
    last = numbers[-1]
    return asked.say(f"We computed {last.value}: {formula(last)}.", f"刚才算出的是{last.value}：{formula(last)}。")


# What is asked


def first(patterns: Sequence[re.Pattern[str]], text: str) -> re.Match[str] | None:
    """The first match of any of the patterns."""
    return next((found for pattern in patterns if (found := pattern.search(text))), None)


def searches_for(asked: Asked) -> dict[str, ToolCall]:
    """A search for each part of the question that is to be looked up.

    What a working day is belongs to it where days are to be converted and nothing said it before.
    """
    clauses = (NOISE.sub(" ", clause).strip(" ,:：、") for clause in CLAUSE.split(asked.text))
    subjects = [
        clause for clause in clauses if words_of(clause) and first((SUM, *SHARES, *DAYS, *TIME), clause) is None
    ]
    queries = {subject: subject for subject in subjects}
    days = first(DAYS, asked.text)
    if days and days["working"] and definition(asked.earlier) is None:
        last = subjects[-1] if subjects else ""
        queries[last] = f"{last}, {asked.say('working days', '工作日')}".lstrip(", ")
    return {subject: call("search_knowledge", query=query) for subject, query in queries.items()}


def words_of(text: str) -> frozenset[str]:
    """What a text is about: its words without those that say nothing, and English ones without their endings."""
    bare = (re.sub(r"(?<=[a-z]{3})(?:ing|ed|es|s|e)$", "", word) for word in tokens(IDLE.sub(" ", text)))
    return frozenset(word for word in bare if len(word) > 1 or word.isdigit())


def definition(results: Sequence[ToolOutcome]) -> tuple[int, str] | None:
    """How many hours a working day has, and which document says so."""
    for passage in (one for done in results for one in passages(done)):
        if found := WORKING_DAY.search(passage.text):
            return int(found[1] or found[2]), passage.source
    return None


def day(asked: Asked) -> tuple[int, str | None]:
    """The hours of a day as the question means it, and which document says so."""
    days = first(DAYS, asked.text)
    return (definition((*asked.turn, *asked.earlier)) if days and days["working"] else None) or (24, None)


def other_calls(asked: Asked) -> list[ToolCall]:
    """The time, percentages, sums and conversions that the question asks for."""
    calls: list[ToolCall] = []
    if first(TIME, asked.text):
        zone = ZONE.search(asked.text)
        calls.append(call("get_current_time", timezone=zone[0]) if zone else call("get_current_time"))
    if share := first(SHARES, asked.text):
        calls.append(call("percentage", part=number(share["part"]), total=number(share["total"])))
    for a, sign, b in SUM.findall(asked.text):
        op = next(op for op, words in SIGNS.items() if re.fullmatch(words, sign, re.I))
        calls.append(call("calculate", a=number(a), op=op, b=number(b)))
    if days := first(DAYS, asked.text):
        calls.append(call("calculate", a=int(days["n"]), op="*", b=day(asked)[0]))
    return calls


def number(text: str) -> int | float:
    """A number as it is written."""
    value = float(text.replace(",", ""))
    return int(value) if value.is_integer() else value


# What was found


def passages(done: ToolOutcome) -> list[Passage]:
    """The passages that a search gave, best first."""
    if done.name != "search_knowledge":
        return []
    found: list[dict[str, Any]] = done.fields.get("passages", [])
    return [
        Passage(each["source"], unwrapped(each["text"]), each.get("heading", ""), each.get("conflicts", ()))
        for each in found
    ]


def unwrapped(text: str) -> str:
    """A text without the line breaks inside its sentences; the fields of a table's row on one line."""
    row = re.fullmatch(r"(?:[^\n:：]+[:：] .+(?:\n|$)){2,}", text)
    return text.replace("\n", "; ") if row else re.sub(r"\n(?=[a-z\d(])", " ", text)


def told_subject(asked: Asked, subject: str, done: ToolOutcome | None) -> str:
    """What the documents say about a subject, each with its source; and where they disagree, that they do."""
    wanted = words_of(subject)
    about = [one for one in (passages(done) if done else []) if 2 * len(wanted & one.words) > len(wanted)]
    if not about:
        return asked.say(f"The documents say nothing about “{subject}”.", f"文档中没有关于“{subject}”的内容。")
    for one in about:
        for other in one.conflicts:
            here, there = one.sentence(wanted, other["here"]), other["there"].strip()
            return asked.say(
                f"The documents disagree: {one.source} says {other['here']} (“{here}”), "
                f"{other['source']} says {other['says']} (“{there}”).",
                f"文档说法不一致：{one.source}为{other['here']}（“{here}”），"
                f"{other['source']}为{other['says']}（“{there}”）。",
            )
    best = max(about, key=lambda one: len(wanted & one.words))
    return asked.say("{}: “{}”.", "{}：“{}”。").format(best.source, best.sentence(wanted).rstrip(".。"))


# What was computed


def formula(done: ToolOutcome) -> str:
    """A calculation with its result."""
    match done.name:
        case "percentage":
            return "{part} / {total} = {}%".format(done.value, **done.arguments)
        case _:
            return "{a} {op} {b} = {}".format(done.value, **done.arguments)


def told_call(asked: Asked, wanted: ToolCall, done: ToolOutcome | None) -> str:
    """What came of the time, a sum or a percentage."""
    if done is None:
        return ""
    if done.name == "get_current_time" and done.fields:
        return asked.say("It is {time} ({timezone}) on {date}.", "现在是{date} {time}（{timezone}）。").format(
            **done.fields
        )
    if not isinstance(done.value, int | float):
        return asked.say(f"That cannot be computed: {done.text}", f"无法计算：{done.text}")
    days = first(DAYS, asked.text)
    if days is None or done.arguments.get("a") != int(days["n"]):
        return asked.say(f"{formula(done)}.", f"{formula(done)}。")
    hours, source = day(asked)
    kind = asked.say("working days", "个工作日") if days["working"] else asked.say("days", "天")
    named = asked.say(f", a working day counts as {hours} hours: {source}", f"，一个工作日按{hours}小时计算：{source}")
    return asked.say(
        f"{days['n']} {kind} are {done.value} hours ({formula(done)}{named if source else ''}).",
        f"{days['n']}{kind}是{done.value}小时（{formula(done)}{named if source else ''}）。",
    )

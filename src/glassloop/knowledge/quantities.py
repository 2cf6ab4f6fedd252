"""Values with a unit in a text: `48 hours`, `二十四小时`, `1.5%`, `¥3,000`, `12 books`, `3-5 working days`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_UNITS = (  # what is measured, how much of it one is, and spellings; Latin ones may have a plural s
    ("working days", 1, "工作日|工作天|working day|business day|work day"),
    ("hours", 1 / 3600, "秒|秒钟|second|sec"),
    ("hours", 1 / 60, "分钟|minute|min"),
    ("hours", 1, "小时|钟头|hour|hr|h"),
    ("hours", 24, "天|日|day"),
    ("hours", 168, "周|星期|礼拜|week"),
    ("hours", 730.5, "个月|month"),
    ("hours", 8766, "年|year"),
    ("percent", 1, "%|percent|per cent|百分点"),
    ("USD", 1, "美元|美金|usd|us$|dollar"),
    ("EUR", 1, "欧元|eur|€|euro"),
    ("GBP", 1, "英镑|gbp|£|pound"),
    ("JPY", 1, "日元|円|jpy|yen"),
    ("HKD", 1, "港元|港币|hkd"),
    ("CNY", 1, "元|块|块钱|人民币|rmb|cny|yuan"),
    ("kg", 1e-3, "克|gram|g"),
    ("kg", 1, "公斤|千克|kilogram|kg"),
    ("kg", 1e3, "吨|ton|tonne"),
    ("m", 1e-3, "毫米|mm"),
    ("m", 1e-2, "厘米|cm"),
    ("m", 1, "米|meter|metre|m"),
    ("m", 1e3, "公里|千米|kilometer|kilometre|km"),
    ("l", 1e-3, "毫升|ml"),
    ("l", 1, "升|liter|litre|l"),
    ("MB", 1e-3, "kb"),
    ("MB", 1, "mb"),
    ("MB", 1e3, "gb"),
    ("MB", 1e6, "tb"),
    ("°C", 1, "°c|摄氏度"),
    ("W", 1, "瓦|watt|w"),
    ("W", 1e3, "千瓦|kw"),
)
_UNIT_OF = {spelling: (kind, size) for kind, size, spellings in _UNITS for spelling in spellings.split("|")}
_SIGN_OF = {"$": "USD", "us$": "USD", "€": "EUR", "£": "GBP", "¥": "CNY"}
_MEASURE_WORDS = "个本张人次件名位台份条项辆间座页杯瓶盒袋层种款套户枚篇笔"

_UP_TO_16 = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_BY_TEN = "twenty thirty forty fifty sixty seventy eighty ninety"
_ONES = _UP_TO_16.split()
_TENS = {word: 10 * ten for ten, word in enumerate(_BY_TEN.split(), 2)}
_WORD_OF = {**{word: value for value, word in enumerate(_ONES, 1)}, **_TENS}
_HAN_DIGITS = {**{digit: value for value, digit in enumerate("零一二三四五六七八九")}, "〇": 0, "两": 2}
_HAN_UNITS = {"十": 10, "百": 100, "千": 1000}
_SCALES = {"千": 1e3, "万": 1e4, "亿": 1e8, "thousand": 1e3, "million": 1e6}


def _any_of(words: Iterable[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


_HAN = "零〇一二两三四五六七八九十百千万亿"
_LATIN = [spelling for spelling in _UNIT_OF if spelling[0].isascii() and spelling[0].isalpha()]
_OTHER = [spelling for spelling in _UNIT_OF if spelling not in _LATIN]
_NUMBER = (
    rf"(?:(?:\d{{1,3}}(?:,\d{{3}})+|\d+)(?:\.\d+)?|(?<![A-Za-z])(?:{_any_of(_TENS)})-(?:{_any_of(_ONES[:9])})"
    rf"|(?<![A-Za-z])(?:{_any_of(_WORD_OF)})(?![a-z])|[{_HAN}]+)(?:\s*(?:{_any_of(_SCALES)}))?"
)
_UNIT = rf"个?(?:{_any_of(_OTHER)})|(?:{_any_of(_LATIN)})s?(?![a-z0-9])"
_QUANTITY = re.compile(
    rf"(?P<hundredths>百分之)?(?P<sign>us\$|[$€£¥])?\s?(?P<low>{_NUMBER})"
    rf"(?:\s*(?:-|–|—|~|to|至|到)\s*(?P<high>{_NUMBER}))?"
    rf"(?:[\s-]?(?P<unit>{_UNIT})|(?P<measure>[{_MEASURE_WORDS}])(?P<thing>[\u4e00-\u9fff]{{0,2}})"
    rf"|[ -](?P<noun>[a-z]{{3,}}))?",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"(?:第|#|§|\b(?:no|nr|version|section|chapter|step|page|article|figure|table|v)\.?\s?)$", re.IGNORECASE
)
_NOT_COUNTED = (
    "and or of the per for with from into than that are was were has have can may must will not but its off out only "
    "each every after before until within times under over more less other further"
)
_NO_NOUN = frozenset(_NOT_COUNTED.split())
_PERIOD = re.compile(
    r"每个?(小时|天|日|周|星期|月|年|人|晚)|(?:/|\b(?:per|an?|each|every)) ?(hour|day|week|month|year|person|night)"
    r"|\b(hourly|daily|weekly|monthly|yearly|annual)",
    re.IGNORECASE,
)
_PERIODS = (
    ("hour", "小时|hourly"),
    ("day", "天|日|daily"),
    ("week", "周|星期|weekly"),
    ("month", "月|monthly"),
    ("year", "年|yearly|annual"),
    ("person", "人"),
    ("night", "晚"),
)
_PERIOD_OF = {spelling: name for name, spellings in _PERIODS for spelling in spellings.split("|")}
_AT_LEAST = re.compile(
    r"at least|minimum|no less than|more than|over|from|至少|不少于|不低于|最少|超过|起码", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value and its unit.

    Args:
        start: where it begins in the text.
        end: where it ends.
        kind: what it measures; values of different kinds are never compared.
        low: the value, or the lower end of a range, in the kind's unit.
        high: the same as `low`, or the upper end.
        period: what it is counted per (`month`, `person`), where the text says so.
        at_least: the text gives a lower bound.
    """

    start: int
    end: int
    kind: str
    low: float
    high: float
    period: str = ""
    at_least: bool = False

    def contradicts(self, other: Quantity) -> bool:
        """Whether both cannot be meant: the same kind, and neither value lies within the other's range."""
        if self.kind != other.kind or self.at_least != other.at_least:
            return False
        if self.period and other.period and self.period != other.period:
            return False
        return not (self._holds(other) or other._holds(self))

    def _holds(self, other: Quantity) -> bool:
        """With room for months and years, which are not all of one length."""
        slack = 0.02 * max(abs(self.high), abs(other.high))
        return self.low - slack <= other.low and other.high <= self.high + slack


def quantities(text: str) -> list[Quantity]:
    """The values with a unit in `text` (NFKC), in order. Numbers of sections, versions, years and days are none."""
    periods = {next(filter(None, match.groups())).lower() for match in _PERIOD.finditer(text)}
    period = periods.pop() if len(periods) == 1 else ""
    found: list[Quantity] = []
    for match in _QUANTITY.finditer(text):
        measured = None if _LABEL.search(text[max(0, match.start() - 12) : match.start()]) else _measured(match)
        if measured is None:
            continue
        kind, size = measured
        low, high = number(match["low"]), number(match["high"] or match["low"])
        at_least = bool(_AT_LEAST.search(text[max(0, match.start() - 16) : match.start()]))
        counted = "" if kind == "hours" else _PERIOD_OF.get(period, period)
        found.append(Quantity(match.start(), match.end(), kind, low * size, high * size, counted, at_least))
    return found


def number(text: str) -> float:
    """`1,000`, `1.5`, `3万`, `twenty-four`, `二十四` as a number."""
    plain = text.strip().lower().replace(",", "")
    scale = next((word for word in _SCALES if plain.endswith(word) and plain != word), "")
    digits = plain.removesuffix(scale).strip()
    if re.fullmatch(r"[\d.]+", digits):
        return float(digits) * _SCALES.get(scale, 1)
    if plain[0] in _HAN:
        return _han(plain)
    return sum(_WORD_OF[word] for word in re.split("[ -]", digits)) * _SCALES.get(scale, 1)


def _han(text: str) -> float:
    if all(digit in _HAN_DIGITS for digit in text):
        return float("".join(str(_HAN_DIGITS[digit]) for digit in text))
    total = section = digit = 0.0
    for char in text:
        if char in _HAN_DIGITS:
            digit = _HAN_DIGITS[char]
        elif char in _HAN_UNITS:
            section, digit = section + (digit or 1) * _HAN_UNITS[char], 0
        else:
            total, section, digit = (total + section + digit) * _SCALES[char], 0, 0
    return total + section + digit


def _measured(match: re.Match[str]) -> tuple[str, float] | None:
    """What a match measures and the size of its unit; None if it is no quantity."""
    if match["sign"]:
        return _SIGN_OF[match["sign"].lower()], 1
    if match["hundredths"]:
        return "percent", 1
    if unit := match["unit"]:
        if unit in ("年", "日") and _is_date(match):
            return None
        name = unit.lower().removeprefix("个") if unit != "个月" else unit
        return _UNIT_OF.get(name.replace("-", " ")) or _UNIT_OF[name.removesuffix("s")]
    if measure := match["measure"]:
        return None if match["low"] == "一" else (f"{measure}{match['thing']}", 1)
    noun = (match["noun"] or "").lower()
    known = noun and noun not in _NO_NOUN and match["low"].lower() != "one"
    return (noun.removesuffix("s"), 1) if known else None


def _is_date(match: re.Match[str]) -> bool:
    """`2023年`, `5月3日`."""
    before = match.string[: match.start()]
    return before.endswith("月") if match["unit"] == "日" else len(match["low"]) == 4

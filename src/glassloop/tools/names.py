"""Tool names: what the provider's wire allows, and how a name that a model wrote is read back."""

from __future__ import annotations

import re
from functools import lru_cache

from glassloop.core.encoding import digest

WIRE_PATTERN = r"^[a-zA-Z0-9_-]{1,64}$"
"""What every provider accepts as a function name (OpenAI and Anthropic state this pattern)."""

_LEGAL = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]+")
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_TEMPLATE_TOKEN = "<|"
_PREFIX_LENGTH = 55  # 64 less an underscore and eight hexadecimal characters


@lru_cache(maxsize=4096)
def wire_name(name: str) -> str:
    """The name under which a tool is sent to a provider.

    A legal name is its own wire name. Any other becomes a readable prefix, `_` and 8 hexadecimal characters of its
    digest, so that two names that differ only in what had to go (`docs.open`, `docs/open`) stay two, in every process.
    """
    if _LEGAL.fullmatch(name):
        return name
    readable = _ILLEGAL.sub("_", name).strip("_")[:_PREFIX_LENGTH] or "tool"
    return f"{readable}_{digest(name.encode('utf-8', 'surrogatepass'))[:8]}"


def cleaned(name: str) -> str:
    """A name as a model wrote it, without what leaks into it: blanks around it, and chat-template tokens after it."""
    return name.partition(_TEMPLATE_TOKEN)[0].strip()


def snake_case(class_name: str) -> str:
    """`CityWeather` as a tool name: `city_weather`."""
    return _WORD_START.sub("_", class_name).lower()


def name_problem(name: str) -> str | None:
    """Why `name` cannot name a tool, or None. Characters that a provider refuses are no problem (`wire_name`)."""
    if not name:
        return "the name is empty"
    if name != cleaned(name):
        return "the name has blanks around it, or `<|`, with which chat templates mark their tokens"
    if not name.isprintable():
        return "the name has characters that cannot be printed"
    return None

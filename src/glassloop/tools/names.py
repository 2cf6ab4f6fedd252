"""Tool names, as developers give them and as models write them back."""

from __future__ import annotations

import re

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_TEMPLATE_TOKEN = "<|"


def cleaned(name: str) -> str:
    """A name as a model wrote it, without what leaks into it: blanks around it, and chat-template tokens after it."""
    return name.partition(_TEMPLATE_TOKEN)[0].strip()


def snake_case(class_name: str) -> str:
    """`CityWeather` as a tool name: `city_weather`."""
    return _WORD_START.sub("_", class_name).lower()


def name_problem(name: str) -> str | None:
    """Why `name` cannot name a tool, or None. Characters that a provider refuses are no problem (`wire_name`)."""
    if not name:
        return "it has no name; give one with name="
    if name != cleaned(name):
        return "its name has blanks around it, or `<|`, with which chat templates mark their tokens"
    if not name.isprintable():
        return "its name has characters that cannot be printed"
    return None

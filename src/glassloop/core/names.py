"""Tool names that every provider accepts, and what servers leave in those that models write."""

from __future__ import annotations

import re
from functools import lru_cache

from glassloop.core.encoding import digest

_LEGAL_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_LEGAL = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}")
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]+")
_MARKUP = re.compile(r"[\"'`<>]")
_PREFIX_LENGTH = 55  # 64 less an underscore and eight hexadecimal characters


@lru_cache(maxsize=4096)
def wire_name(name: str) -> str:
    """The name of a tool on the wire: `^[a-zA-Z][a-zA-Z0-9_-]{0,63}$`, the same in every process.

    A legal name is its own wire name. Any other becomes a readable prefix, `_` and 8 hexadecimal characters of its
    digest, so that names that differ only in what had to go (`docs.open`, `docs/open`) stay different. The pattern is
    that of OpenAI's function names and of Anthropic's tool names; the letter is what Moonshot wants at the beginning,
    and Gemini, which takes an underscore, too.
    """
    if _LEGAL.fullmatch(name):
        return name
    readable = _ILLEGAL.sub("_", name).strip("_-")
    if not readable[:1].isalpha():
        readable = f"tool_{readable}".rstrip("_")
    readable = readable[:_PREFIX_LENGTH]
    return f"{readable}_{digest(name.encode('utf-8', 'surrogatepass'))[:8]}"


@lru_cache(maxsize=4096)
def wire_key(name: str) -> str:
    """The name of an argument where a provider restricts those: `^[a-zA-Z0-9_.-]{1,64}$` (Anthropic's property keys).

    Made as `wire_name` makes those of tools.
    """
    if _LEGAL_KEY.fullmatch(name):
        return name
    readable = _ILLEGAL.sub("_", name).strip("_")[:_PREFIX_LENGTH] or "argument"
    return f"{readable}_{digest(name.encode('utf-8', 'surrogatepass'))[:8]}"


def before_markup(name: str) -> str:
    """What stands before markup that a server's parser left in a name: `run" parameter="command`, `run</function>`."""
    return _MARKUP.split(name.strip("\"'`"), maxsplit=1)[0].strip()

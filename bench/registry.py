"""Who takes part: every peer's script, environment and import statement."""

from dataclasses import dataclass

REFERENCE = "raw_openai"


@dataclass(frozen=True)
class Entry:
    """One column of the table."""

    key: str
    module: str
    """Script in `bench/peers`."""
    environment: str
    """Virtual environment, made from `requirements/<environment>.txt`."""
    statement: str = ""
    """What a user's program imports at its top; empty where another entry has the same."""
    variant: str = ""
    durable: bool = False


_ENTRIES = [
    Entry(
        "glassloop",
        "glassloop_",
        "glassloop",
        "from glassloop import Agent; import glassloop.models.openai_chat, glassloop.stores.sqlite.store",
    ),
    Entry("glassloop_sqlite", "glassloop_", "glassloop", variant="sqlite", durable=True),
    Entry("raw_aiohttp", "raw_aiohttp", "raw_aiohttp", "import aiohttp"),
    Entry(
        "raw_openai",
        "raw_openai",
        "raw_openai",
        "from openai import AsyncOpenAI; AsyncOpenAI(api_key='x').chat.completions",  # the SDK is lazy
    ),
    Entry(
        "pydantic_ai",
        "pydantic_ai_",
        "pydantic_ai",
        "from pydantic_ai import Agent; from pydantic_ai.models.openai import OpenAIChatModel",
    ),
    Entry(
        "openai_agents",
        "openai_agents_",
        "openai_agents",
        "from agents import Agent, Runner, OpenAIChatCompletionsModel",
    ),
]
ENTRIES = {entry.key: entry for entry in _ENTRIES}

"""Quirks of servers that speak OpenAI's Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from glassloop.core.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Profile:
    """What a compatible server wants different.

    Args:
        strict_alternation: one leading system message, then user and assistant by turns (tool groups excepted), as
            Mistral and the chat templates of many open models demand; what stands in the way is merged, and where a
            user speaks right after tool results, a short reply comes between.
        system_role: `system`, or `developer`.
        max_tokens_field: `max_tokens`, or `max_completion_tokens` (OpenAI, whose reasoning models refuse the other).
        empty_content: content of an assistant message that has only calls; some proxies refuse null, others "".
        usage_in_stream: whether `stream_options.include_usage` is understood.
        echo_reasoning: whether reasoning of tool-call replies is sent back to the server it came from.
        missing_reasoning: reasoning of a tool-call reply that has none of this server's, where there must be some.
        reasoning_of_answers: whether the same holds for replies without calls (DeepSeek V4 refuses a conversation with
            tool calls in which an answer has lost its reasoning).
        missing_signature: signature of a step's first call that has none of this server's, where there must be one.
        one_maker: whether all models behind the host are of one maker and read each other's reasoning, signatures and
            call ids. Elsewhere those go back to the very model that they came from alone.
        images: whether `image_url` parts are understood.
        files: whether `file` parts with a PDF are understood.
        image_bytes: base64 characters of images and files in one request; the newest are kept.
        short_call_ids: call ids are nine letters or digits.
        effort_field: the field for an effort of thinking.
        json_schema: whether `response_format` with a `json_schema` constrains replies: `always`, `without_tools` (where
            a request with both would never call a tool, as at Ollama and llama.cpp), or `never`.
        strict_schema: whether the schema must be in OpenAI's strict form, in which every property is required, and the
            model is shown it; elsewhere it stands in the instructions, too.
        moonshot_schemas: whether schemas must be in Moonshot's flavour.
        longest_description: characters of a tool's description; what is longer goes on in that of its parameters.
    """

    strict_alternation: bool = False
    system_role: Literal["system", "developer"] = "system"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    empty_content: Literal[""] | None = None
    usage_in_stream: bool = True
    echo_reasoning: bool = True
    missing_reasoning: str | None = None
    reasoning_of_answers: bool = False
    missing_signature: str | None = None
    one_maker: bool = False
    images: bool = True
    files: bool = False
    image_bytes: int = 6_000_000
    short_call_ids: bool = False
    effort_field: str | None = "reasoning_effort"
    json_schema: Literal["always", "without_tools", "never"] = "without_tools"
    strict_schema: bool = False
    moonshot_schemas: bool = False
    longest_description: int | None = None


PROFILES: Mapping[str, Profile] = {
    "default": Profile(),
    "openai": Profile(
        max_tokens_field="max_completion_tokens",
        files=True,
        echo_reasoning=False,
        json_schema="always",
        strict_schema=True,
        longest_description=1_024,
        one_maker=True,
    ),
    "deepseek": Profile(
        images=False, missing_reasoning="", reasoning_of_answers=True, json_schema="never", one_maker=True
    ),
    "gemini": Profile(missing_signature="skip_thought_signature_validator", one_maker=True),
    "mistral": Profile(
        strict_alternation=True,
        usage_in_stream=False,
        short_call_ids=True,
        echo_reasoning=False,
        effort_field=None,
        one_maker=True,
    ),
    "moonshot": Profile(missing_reasoning=" ", json_schema="never", one_maker=True, moonshot_schemas=True),
    "openrouter": Profile(files=True, json_schema="never"),
    "no-json-schema": Profile(json_schema="never"),
    "strict-alternation": Profile(strict_alternation=True),
}
"""Profiles by name; any other server gets `default`."""

_NAME_OF_HOST: Mapping[str, str] = {
    "api.openai.com": "openai",
    "openai.azure.com": "openai",
    "api.deepseek.com": "deepseek",
    "generativelanguage.googleapis.com": "gemini",
    "aiplatform.googleapis.com": "gemini",
    "api.mistral.ai": "mistral",
    "api.moonshot.ai": "moonshot",
    "api.moonshot.cn": "moonshot",
    "api.kimi.com": "moonshot",
    "openrouter.ai": "openrouter",
    "api.groq.com": "no-json-schema",
    "dashscope.aliyuncs.com": "no-json-schema",
    "dashscope-intl.aliyuncs.com": "no-json-schema",
    "api.z.ai": "no-json-schema",
    "open.bigmodel.cn": "no-json-schema",
}


def profile_for(host: str) -> Profile:
    """The profile of a host (with or without port), by its name or the end of it."""
    bare = host.partition(":")[0].lower()
    for known, name in _NAME_OF_HOST.items():
        if bare == known or bare.endswith(f".{known}"):
            return PROFILES[name]
    return PROFILES["default"]


def as_profile(profile: Profile | str | None, host: str) -> Profile:
    """The profile that is meant: itself, by name, or by host where none is given.

    Raises:
        ConfigurationError: no profile has that name.
    """
    if isinstance(profile, Profile):
        return profile
    if profile is None:
        return profile_for(host)
    if profile not in PROFILES:
        raise ConfigurationError(f"There is no profile {profile!r}; there are {', '.join(sorted(PROFILES))}.")
    return PROFILES[profile]

"""Models by name, and by the usual environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from glassloop.core.errors import ConfigurationError
from glassloop.models.endpoints import is_local
from glassloop.models.model import Model
from glassloop.models.transport import host_of

Wire = Literal["openai-chat", "anthropic-messages"]


@dataclass(frozen=True, slots=True)
class Provider:
    """One line of the list of providers.

    Args:
        wire: the format it speaks.
        base_url: where it is.
        key: the environment variable of its key; empty where it wants none.
        base_variable: the environment variable that moves it elsewhere.
        model: asked for where only the key is set and no model is named; empty for none.
    """

    wire: Wire
    base_url: str
    key: str = ""
    base_variable: str = ""
    model: str = ""


PROVIDERS: Mapping[str, Provider] = {
    "openai": Provider("openai-chat", "https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL", "gpt-5.4-mini"),
    "anthropic": Provider(
        "anthropic-messages",
        "https://api.anthropic.com",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "claude-sonnet-5",
    ),
    "deepseek": Provider("openai-chat", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", model="deepseek-chat"),
    "gemini": Provider("openai-chat", "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    "glm": Provider("openai-chat", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY"),
    "groq": Provider("openai-chat", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "llamacpp": Provider("openai-chat", "http://localhost:8080/v1"),
    "mistral": Provider("openai-chat", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "moonshot": Provider("openai-chat", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY", "MOONSHOT_BASE_URL"),
    "ollama": Provider("openai-chat", "http://localhost:11434/v1", base_variable="OLLAMA_BASE_URL"),
    "openrouter": Provider("openai-chat", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "qwen": Provider(
        "openai-chat",
        "https://dashscope.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
        "DASHSCOPE_BASE_URL",
        "qwen-plus",
    ),
    "vllm": Provider("openai-chat", "http://localhost:8000/v1"),
    "xai": Provider("openai-chat", "https://api.x.ai/v1", "XAI_API_KEY"),
    "zhipu": Provider("openai-chat", "https://open.bigmodel.cn/api/paas/v4", "ZHIPUAI_API_KEY"),
}
"""Providers by the prefix of a model's name."""

_COMPATIBLE = Provider("openai-chat", "")
_BARE = "compatible"


def resolve_model(spec: str | Model | None = None, env: Mapping[str, str] | None = None) -> Model:
    """The model that is meant.

    `provider:model` names a model of a provider in `PROVIDERS`. A bare name, or one with an unknown prefix, is a model
    of the compatible server at `MODEL_ENDPOINT`. Without a name `MODEL` is read, and without that the first provider
    whose key is set answers with its usual model.

    `MODEL_ENDPOINT` takes the place of the provider's base URL and `MODEL_API_KEY` of its key variable; both may be
    used with any provider. The endpoint may be written with or without `/v1`, a slash at the end, or the path
    `/chat/completions`. Servers on this machine and on the local network need no key.

    Args:
        spec: a name; or a model, which is returned as it is.
        env: the environment, by default the process's.

    Raises:
        ConfigurationError: no model is named, the provider is unknown, or its key is missing; one sentence that says
            what to set.
    """
    if spec is not None and not isinstance(spec, str):
        return spec
    variables = os.environ if env is None else env
    name = (spec if spec is not None else _named_by(variables)).strip()
    endpoint = _read(variables, "MODEL_ENDPOINT")
    prefix, colon, model = name.partition(":")
    provider = PROVIDERS.get(prefix) if colon else None
    if provider is None:
        if not endpoint:
            raise _unknown(name)
        return _compatible(name, endpoint, _read(variables, "MODEL_API_KEY"))
    if not model:
        raise ConfigurationError(f"The model {name!r} names a provider and no model; write e.g. openai:gpt-5.")
    base_url = endpoint or _read(variables, provider.base_variable) or provider.base_url
    own_key = _read(variables, "MODEL_API_KEY")
    key = own_key or _read(variables, provider.key)
    variable = "MODEL_API_KEY" if own_key else provider.key or "MODEL_API_KEY"
    if not key and provider.key and not is_local(host_of(base_url if "://" in base_url else f"//{base_url}")):
        raise ConfigurationError(
            f"{name} needs a key: set {provider.key} (or MODEL_API_KEY), or choose another model with MODEL."
        )
    return _build(provider.wire, name, model, base_url, key, variable)


def _named_by(variables: Mapping[str, str]) -> str:
    named = _read(variables, "MODEL")
    if named:
        return named
    for prefix, provider in PROVIDERS.items():
        if provider.model and _read(variables, provider.key):
            return f"{prefix}:{provider.model}"
    if _read(variables, "MODEL_ENDPOINT"):
        raise ConfigurationError("MODEL_ENDPOINT is set, but no model is named: set MODEL to one that the server has.")
    raise ConfigurationError(
        "No model is configured: set MODEL (e.g. MODEL=openai:gpt-5) and the provider's key, or pass model=."
    )


def _unknown(name: str) -> ConfigurationError:
    known = ", ".join(sorted(PROVIDERS))
    return ConfigurationError(
        f"The model {name!r} names no known provider: write provider:model with one of {known}, "
        "or set MODEL_ENDPOINT to a server that is compatible with OpenAI's."
    )


def _compatible(name: str, endpoint: str, key: str) -> Model:
    if not name:
        raise ConfigurationError("The name of the model is empty; set MODEL to one that the server has.")
    return _build(_COMPATIBLE.wire, f"{_BARE}:{name}", name, endpoint, key, "MODEL_API_KEY")


def _read(variables: Mapping[str, str], name: str) -> str:
    """A variable; one that is set to nothing counts as not set."""
    return variables.get(name, "").strip() if name else ""


@lru_cache(maxsize=128)
def _build(wire: Wire, name: str, model: str, base_url: str, key: str, variable: str) -> Model:
    """One object for each distinct model: it is stateless, and what it has encoded serves every run."""
    match wire:
        case "openai-chat":
            from glassloop.models.openai_chat import OpenAIChat

            return OpenAIChat(
                model, api_key=key or None, base_url=with_version(base_url), name=name, key_variable=variable
            )
        case "anthropic-messages":
            from glassloop.models.anthropic import Anthropic

            return Anthropic(model, api_key=key or None, base_url=base_url, name=name, key_variable=variable)


def with_version(base_url: str) -> str:
    """A base URL as OpenAI's wire wants it: one that is only a host gets `/v1`, one with a path is left alone."""
    head, scheme, rest = base_url.rpartition("://")
    rest = rest.rstrip("/").removesuffix("/chat/completions").rstrip("/")
    return f"{head}{scheme}{rest}/v1" if rest and "/" not in rest else f"{head}{scheme}{rest}"

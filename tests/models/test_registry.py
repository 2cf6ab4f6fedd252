from __future__ import annotations

import pytest

from glassloop.core.errors import ConfigurationError, ModelError
from glassloop.core.messages import UserMessage
from glassloop.models.anthropic import Anthropic
from glassloop.models.endpoints import is_local, join_url
from glassloop.models.model import Model, ModelRequest, complete
from glassloop.models.openai_chat import OpenAIChat
from glassloop.models.registry import PROVIDERS, resolve_model
from glassloop.models.scripted import ScriptedModel

LOCAL = "http://127.0.0.1:9"


def seen(model: Model) -> tuple[type, str, str]:
    """Class, name and host."""
    assert isinstance(model, OpenAIChat | Anthropic)
    return type(model), model.name, model.provider.partition(":")[2].partition("/")[0]


def test_a_model_is_itself() -> None:
    model = ScriptedModel([])
    assert resolve_model(model, {}) is model


@pytest.mark.parametrize("prefix", sorted(PROVIDERS))
def test_every_provider(prefix: str) -> None:
    provider = PROVIDERS[prefix]
    env = {provider.key: "sk-1"} if provider.key else {}
    kind, name, host = seen(resolve_model(f"{prefix}:some/model:v1", env))
    assert kind is (Anthropic if prefix == "anthropic" else OpenAIChat)
    assert name == f"{prefix}:some/model:v1"
    assert host in provider.base_url
    if provider.key:
        with pytest.raises(ConfigurationError, match=f"set {provider.key} "):
            resolve_model(f"{prefix}:m", {})


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({"MODEL": "openai:gpt-9", "OPENAI_API_KEY": "k"}, "openai:gpt-9"),
        ({"MODEL": " openai:gpt-9 ", "OPENAI_API_KEY": "k"}, "openai:gpt-9"),
        ({"ANTHROPIC_API_KEY": "k"}, f"anthropic:{PROVIDERS['anthropic'].model}"),
        ({"OPENAI_API_KEY": "k", "MODEL": ""}, f"openai:{PROVIDERS['openai'].model}"),
        ({"MODEL": "llama", "MODEL_ENDPOINT": LOCAL}, "compatible:llama"),
        ({"MODEL": "qwen3:8b", "MODEL_ENDPOINT": LOCAL}, "compatible:qwen3:8b"),
    ],
)
def test_the_environment_names_the_model(env: dict[str, str], name: str) -> None:
    assert seen(resolve_model(None, env))[1] == name


@pytest.mark.parametrize(
    ("spec", "env", "host"),
    [
        ("openai:m", {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "https://proxy.example/v1"}, "proxy.example"),
        ("anthropic:m", {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "https://proxy.example"}, "proxy.example"),
        ("openai:m", {"MODEL_ENDPOINT": LOCAL, "OPENAI_BASE_URL": "https://proxy.example/v1"}, "127.0.0.1:9"),
        ("anthropic:m", {"MODEL_ENDPOINT": LOCAL}, "127.0.0.1:9"),
        ("deepseek:m", {"MODEL_ENDPOINT": "http://10.0.0.7:8000"}, "10.0.0.7:8000"),
        ("openai:m", {"MODEL_ENDPOINT": "vllm:8000/v1"}, "vllm:8000"),
        ("ollama:m", {"OLLAMA_BASE_URL": "http://box.local:11434"}, "box.local:11434"),
    ],
)
def test_endpoints(spec: str, env: dict[str, str], host: str) -> None:
    assert seen(resolve_model(spec, env))[2] == host


ENDPOINTS = ["", "/", "/v1", "/v1/", "/v1/chat/completions", "/chat/completions/"]


@pytest.mark.parametrize("written", ENDPOINTS)
async def test_an_endpoint_may_be_written_in_many_ways(raw_server: object, written: str) -> None:
    assert await asked_path(raw_server, "openai:m", written) == b"/v1/chat/completions"


@pytest.mark.parametrize("written", ["", "/", "/v1", "/v1/messages"])
async def test_an_endpoint_of_anthropic_may_be_too(raw_server: object, written: str) -> None:
    assert await asked_path(raw_server, "anthropic:m", written) == b"/v1/messages"


async def test_a_path_of_its_own_is_left_alone(raw_server: object) -> None:
    assert await asked_path(raw_server, "openai:m", "/api/v3") == b"/api/v3/chat/completions"


async def asked_path(server: object, spec: str, written: str) -> bytes:
    url: str = getattr(server, "url")  # noqa: B009  # a fixture's class cannot be imported
    requests: list[bytes] = getattr(server, "requests")  # noqa: B009  # as above
    answers: list[list[bytes]] = getattr(server, "answers")  # noqa: B009  # as above
    answers.append([b"HTTP/1.1 418 No\r\ncontent-length: 0\r\n\r\n"])
    with pytest.raises(ModelError, match="418"):
        await complete(resolve_model(spec, {"MODEL_ENDPOINT": url + written}), ModelRequest((UserMessage("q"),)))
    return requests[0].split(b" ")[1]


async def sent_key(raw_server: object, spec: str, env: dict[str, str]) -> str:
    url: str = getattr(raw_server, "url")  # noqa: B009  # a fixture's class cannot be imported
    requests: list[bytes] = getattr(raw_server, "requests")  # noqa: B009  # as above
    answers: list[list[bytes]] = getattr(raw_server, "answers")  # noqa: B009  # as above
    answers.append([b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n"])
    with pytest.raises(ModelError) as caught:
        await complete(resolve_model(spec, {"MODEL_ENDPOINT": url, **env}), ModelRequest((UserMessage("q"),)))
    assert b"secret" not in str(caught.value).encode()
    head = requests[-1].decode()
    keys = [line for line in head.split("\r\n") if line.lower().startswith(("authorization", "x-api-key"))]
    return f"{keys} {str(caught.value).partition('set ')[2].split(' ')[0]}"


async def test_whose_key_is_sent_and_whose_variable_is_named(raw_server: object) -> None:
    both = {"OPENAI_API_KEY": "secret-1", "MODEL_API_KEY": "secret-2"}
    assert await sent_key(raw_server, "openai:m", both) == "['Authorization: Bearer secret-2'] MODEL_API_KEY"


async def test_the_providers_key_is_used_where_there_is_no_other(raw_server: object) -> None:
    env = {"ANTHROPIC_API_KEY": "secret-1"}
    assert await sent_key(raw_server, "anthropic:m", env) == "['x-api-key: secret-1'] ANTHROPIC_API_KEY"


async def test_a_compatible_server_is_not_shown_another_providers_key(raw_server: object) -> None:
    assert await sent_key(raw_server, "llama", {"OPENAI_API_KEY": "secret-1"}) == "[] MODEL_API_KEY"


@pytest.mark.parametrize(
    ("spec", "env", "words"),
    [
        (None, {}, "No model is configured: set MODEL"),
        (None, {"MODEL_ENDPOINT": LOCAL}, "MODEL_ENDPOINT is set, but no model is named"),
        ("gpt-5", {}, "names no known provider: write provider:model with one of anthropic, deepseek, "),
        ("opnai:gpt-5", {"OPENAI_API_KEY": "k"}, "'opnai:gpt-5' names no known provider"),
        ("openai:", {"OPENAI_API_KEY": "k"}, "names a provider and no model"),
        ("openai:m", {"OPENAI_API_KEY": " "}, "openai:m needs a key: set OPENAI_API_KEY"),
        ("openai:m", {"OPENAI_API_KEY": "two words"}, "OPENAI_API_KEY holds characters that no key has"),
        ("openai:m", {"OPENAI_API_KEY": "schlüssel"}, "OPENAI_API_KEY holds characters that no key has"),
        ("openai:m", {"OPENAI_API_KEY": "k", "MODEL_ENDPOINT": "ftp://x"}, "not an http"),
        ("openai:m", {"OPENAI_API_KEY": "k", "MODEL_ENDPOINT": "http://"}, "not an http"),
        ("openai:m", {"MODEL_ENDPOINT": "https://public.example.com"}, "set OPENAI_API_KEY"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(spec: str | None, env: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        resolve_model(spec, env)
    assert "\n" not in str(caught.value)
    assert "schl" not in str(caught.value)


def test_the_same_name_gives_the_same_model() -> None:
    env = {"OPENAI_API_KEY": "k"}
    assert resolve_model("openai:m", env) is resolve_model("openai:m", env)
    assert resolve_model("openai:m", env) is not resolve_model("openai:m", {"OPENAI_API_KEY": "k2"})


def test_a_model_does_not_show_its_key() -> None:
    for spec, key in [("openai:m", "OPENAI_API_KEY"), ("anthropic:m", "ANTHROPIC_API_KEY")]:
        model = resolve_model(spec, {key: "sk-secret"})
        assert "secret" not in f"{model!r} {model} {vars(model)}"


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost:8000", True),
        ("127.0.0.1", True),
        ("[::1]:8000", True),
        ("192.168.1.5:80", True),
        ("vllm", True),
        ("box.local", True),
        ("host.docker.internal:80", True),
        ("api.openai.com", False),
        ("8.8.8.8", False),
        ("[2606:4700::1111]", False),
    ],
)
def test_local_hosts(host: str, local: bool) -> None:
    assert is_local(host) == local


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://h/v1", "https://h/v1/chat/completions"),
        (" https://h/v1/ ", "https://h/v1/chat/completions"),
        ("h.example/v1", "https://h.example/v1/chat/completions"),
        ("localhost:8000", "http://localhost:8000/chat/completions"),
        ("https://h/v1/chat/completions", "https://h/v1/chat/completions"),
    ],
)
def test_join_url(base: str, url: str) -> None:
    assert join_url(base, "chat/completions") == url


@pytest.mark.parametrize("base", ["", "http://", "http://[::x]/", "file:///etc"])
def test_what_is_no_url(base: str) -> None:
    with pytest.raises(ConfigurationError, match="not an http"):
        join_url(base, "x")


def test_a_header_that_cannot_be_sent() -> None:
    with pytest.raises(ConfigurationError, match="header 'x-a' cannot be sent"):
        OpenAIChat("m", headers={"x-a": "1\r\nx-b: 2"})

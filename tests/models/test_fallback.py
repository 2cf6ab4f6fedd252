from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from glassloop.core.errors import ConfigurationError, ModelError, ModelErrorKind
from glassloop.core.messages import UserMessage
from glassloop.models.fallback import Fallback
from glassloop.models.model import Model, ModelPart, ModelRequest, ReplyPart, TextPart, complete
from glassloop.models.scripted import ScriptedModel

ASK = ModelRequest((UserMessage("q"),), stream=True)


def failing(kind: ModelErrorKind) -> ScriptedModel:
    return ScriptedModel([ModelError(f"{kind}!", kind=kind)], name="first")


async def test_the_first_that_answers_answers() -> None:
    first, second = ScriptedModel(["one"], name="first"), ScriptedModel(["two"], name="second")
    reply = await complete(Fallback(first, second), ASK)
    assert (reply.text, reply.model) == ("one", "first")
    assert second.requests == []


@pytest.mark.parametrize(
    "kind", ["rate_limit", "overloaded", "connection", "timeout", "protocol", "auth", "payment", "not_found"]
)
async def test_the_next_is_asked_where_one_cannot_answer(kind: ModelErrorKind) -> None:
    reply = await complete(Fallback(failing(kind), ScriptedModel(["two"], name="second")), ASK)
    assert (reply.text, reply.model) == ("two", "second")


@pytest.mark.parametrize("kind", ["invalid_request", "context_length", "bad_tool_call"])
async def test_a_request_that_is_wrong_is_not_taken_elsewhere(kind: ModelErrorKind) -> None:
    second = ScriptedModel(["two"])
    with pytest.raises(ModelError, match=f"{kind}!"):
        await complete(Fallback(failing(kind), second), ASK)
    assert second.requests == []


async def test_the_last_error_is_the_error() -> None:
    with pytest.raises(ModelError, match="auth!"):
        await complete(Fallback(failing("overloaded"), failing("auth")), ASK)


@dataclass
class Breaking:
    """Says something and breaks off."""

    name: str = "breaking"
    closed: list[bool] = field(default_factory=list[bool])

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        try:
            yield TextPart("so far")
            raise ModelError("broke", kind="connection")
        finally:
            self.closed.append(True)


async def test_nobody_else_is_asked_once_something_was_shown() -> None:
    second = ScriptedModel(["two"])
    parts = aiter(Fallback(Breaking(), second).stream(ASK))
    assert await anext(parts) == TextPart("so far")
    with pytest.raises(ModelError, match="broke"):
        await anext(parts)
    assert second.requests == []


async def test_leaving_early_closes_the_model_that_answers() -> None:
    breaking = Breaking()
    parts = Fallback(breaking, ScriptedModel([])).stream(ASK)
    async for _ in parts:
        break
    await parts.aclose()  # type: ignore[attr-defined]  # an async generator, as `Model` says by word only
    assert breaking.closed == [True]


async def test_the_same_model_twice() -> None:
    model = ScriptedModel([ModelError("x", kind="overloaded"), "two"])
    assert (await complete(Fallback(model, model), ASK)).text == "two"


def test_names_are_resolved_when_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    fallback = Fallback("openai:a", "anthropic:b")
    assert fallback.name == "openai:a|anthropic:b"
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        _ = fallback.models
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    assert [model.name for model in fallback.models] == ["openai:a", "anthropic:b"]


def test_one_model_is_no_fallback() -> None:
    with pytest.raises(ConfigurationError, match="at least two"):
        Fallback("openai:a")


async def test_it_is_a_model() -> None:
    fallback = Fallback(failing("overloaded"), ScriptedModel(["two"]))
    assert isinstance(fallback, Model)
    parts = [part async for part in fallback.stream(ASK)]
    assert isinstance(parts[-1], ReplyPart)

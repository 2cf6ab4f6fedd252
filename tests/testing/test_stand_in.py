"""A stand-in is used where no real model is configured, and only there."""

from __future__ import annotations

import gc
import urllib.request
from pathlib import Path
from urllib.error import URLError

import pytest

from glassloop import Agent
from glassloop.core.errors import ConfigurationError
from glassloop.testing import Conversation, StandIn, call
from glassloop.testing.conversation import WireName
from glassloop.testing.server import Received
from glassloop.testing.stand_in import configured_model


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def brain(conversation: Conversation) -> object:
    return (
        f"{conversation.wire} says {conversation.results[0].value}" if conversation.results else call("add", a=1, b=2)
    )


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_the_agent_takes_the_same_path_as_in_production(wire: WireName) -> None:
    stand_in = StandIn(brain, wire=wire)  # pyright: ignore[reportArgumentType] a brain that returns less is fine too
    with stand_in.choose({}) as chosen:
        assert not isinstance(chosen.model, str)
        assert chosen.model.name == f"{wire}:stand-in"
        result = Agent(chosen.model, [add]).run_sync("1 + 2?")
    url = chosen.note.split()[3]
    assert chosen.note == f"Model: stand-in on {url} (set MODEL or a provider key for a real one)"
    assert (result.output, result.steps) == (f"{wire} says 3", 2)
    with pytest.raises(URLError):
        urllib.request.urlopen(url, timeout=5)


def test_one_that_is_served_for_long_keeps_only_its_latest_requests() -> None:
    with StandIn(lambda _: "hi").serve() as chosen:
        agent = Agent(chosen.model)
        for _ in range(30):
            agent.run_sync("hello " * 1_000)
        host = chosen.note.split()[3].removeprefix("http://")
        kept = [each for each in gc.get_objects() if isinstance(each, Received) and each.headers["host"] == host]
    assert 1 <= len(kept) <= 16


@pytest.mark.parametrize(
    ("environ", "wire", "model"),
    [
        ({}, "openai", None),
        ({"MODEL": "  ", "OPENAI_API_KEY": ""}, "openai", None),
        ({"MODEL": "openai:x", "ANTHROPIC_API_KEY": "k"}, "anthropic", "openai:x"),
        ({"ANTHROPIC_API_KEY": "k"}, "openai", "anthropic:"),
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}, "openai", "openai:"),
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}, "anthropic", "anthropic:"),
        ({"DASHSCOPE_API_KEY": "k"}, "openai", "qwen:"),
    ],
)
def test_what_is_configured(environ: dict[str, str], wire: WireName, model: str | None) -> None:
    found = configured_model(environ, wire)
    assert found == model if model is None else (found or "").startswith(model)


def test_a_configured_model_is_named_and_nothing_is_served() -> None:
    with StandIn("nowhere.py").choose({"MODEL": "openai:gpt-x"}) as chosen:
        assert (chosen.model, chosen.note) == ("openai:gpt-x", "Model: openai:gpt-x")


def test_an_endpoint_without_a_model_is_a_mistake() -> None:
    with (
        pytest.raises(ConfigurationError, match="set MODEL"),
        StandIn("x.py").choose({"MODEL_ENDPOINT": "http://h/v1"}),
    ):
        pass


def test_a_brain_in_a_file_is_imported_when_it_is_needed(tmp_path: Path) -> None:
    stand_in = StandIn("brains/clever.py", beside=str(tmp_path / "agent.py"))
    with pytest.raises(ConfigurationError, match=r"there is no Python file .+clever\.py"), stand_in.serve():
        pass
    (tmp_path / "brains").mkdir()
    (tmp_path / "brains/clever.py").write_text("def mind(conversation): return 'hm'\n")
    with pytest.raises(ConfigurationError, match="no function `brain`"), stand_in.serve():
        pass
    (tmp_path / "brains/clever.py").write_text("def brain(conversation): return conversation.user.upper()\n")
    with stand_in.serve() as chosen:
        assert Agent(chosen.model).run_sync("hello").output == "HELLO"

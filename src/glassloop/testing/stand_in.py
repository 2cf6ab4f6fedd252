"""A stand-in for a provider's model, for demonstrations without a key."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from glassloop.core.errors import ConfigurationError
from glassloop.testing.conversation import WireName
from glassloop.testing.server import Brain, ModelServer

if TYPE_CHECKING:
    from glassloop.models.model import Model


_KEPT = 16  # requests, of 50 KB with a long conversation: nobody reads them here, and a demonstration may run for weeks


@dataclass(frozen=True)
class Chosen:
    """The model to use.

    Args:
        model: for `Agent.run(model=...)`.
        note: one line that says which model is at work.
    """

    model: str | Model
    note: str


class StandIn:
    """A brain behind a provider's wire format, to use where no real model is configured.

    The agent takes the same path as in production: a request over HTTP to a `ModelServer` on loopback.

    Args:
        brain: decides what to say; or the file that holds a function `brain`, imported only when it is needed.
        beside: where the name of a file is relative to: pass `__file__`.
        wire: the provider's format, `openai` (Chat Completions) or `anthropic` (Messages).
    """

    def __init__(self, brain: Brain | str, *, beside: str = "", wire: WireName = "openai") -> None:
        self._brain = brain
        self._beside = beside
        self.wire: WireName = wire

    @property
    def brain(self) -> Brain:
        """What decides.

        Raises:
            ConfigurationError: the file cannot be found, or has no function `brain`.
        """
        if not isinstance(self._brain, str):
            return self._brain
        return _load(Path(self._beside).parent / self._brain)

    @contextmanager
    def choose(self, environ: Mapping[str, str] = os.environ) -> Generator[Chosen]:
        """The model to use while the block runs: MODEL, or a provider's whose key is set, else this stand-in."""
        real = configured_model(environ, self.wire)
        if real is not None:
            yield Chosen(real, f"Model: {real}")
            return
        with self.serve() as chosen:
            yield chosen

    @contextmanager
    def serve(self) -> Generator[Chosen]:
        """This stand-in as a model, served while the block runs."""
        server = ModelServer(self.brain, keep=_KEPT)
        server.start()
        try:
            where = f"stand-in on {server.anthropic_url}"
            yield Chosen(_client(server, self.wire), f"Model: {where} (set MODEL or a provider key for a real one)")
        finally:
            server.stop()


def configured_model(environ: Mapping[str, str], wire: WireName = "openai") -> str | None:
    """The model that the environment asks for: MODEL, or the usual one of a provider whose key is set.

    Of several keys, one for a provider that speaks `wire` comes first. None where nothing is configured.

    Raises:
        ConfigurationError: MODEL_ENDPOINT is set and no model is named.
    """
    from glassloop.models.registry import PROVIDERS, resolve_model

    if environ.get("MODEL", "").strip():
        return environ["MODEL"].strip()
    usable = [(name, known) for name, known in PROVIDERS.items() if known.model and environ.get(known.key, "").strip()]
    for name, known in sorted(usable, key=lambda item: not item[1].wire.startswith(wire)):
        return f"{name}:{known.model}"
    return resolve_model(None, environ).name if environ.get("MODEL_ENDPOINT", "").strip() else None


def _client(server: ModelServer, wire: WireName) -> Model:
    if wire == "anthropic":
        from glassloop.models.anthropic import Anthropic

        return Anthropic("stand-in", base_url=server.anthropic_url, api_key="stand-in")
    from glassloop.models.openai_chat import OpenAIChat

    return OpenAIChat("stand-in", base_url=server.url, api_key="stand-in")


def _load(path: Path) -> Brain:
    spec = importlib.util.spec_from_file_location(f"_glassloop_stand_in_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigurationError(f"The stand-in model is missing: there is no Python file {path}.")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    brain: Callable[..., object] | None = getattr(module, "brain", None)
    if not callable(brain):
        raise ConfigurationError(f"{path} has no function `brain`, which a stand-in model needs.")
    return brain  # type: ignore[return-value]

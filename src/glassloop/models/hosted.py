"""What all models behind an HTTP endpoint have in common, whatever their wire format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator

from glassloop.models.exchange import Endpoint, ReplyReader, exchange
from glassloop.models.model import ModelPart, ModelRequest


class HostedModel(ABC):
    """A model that is asked by one POST. Stateless, and shared freely between runs, threads and event loops.

    Args:
        name: what the journal calls it.
        provider: the identity under which its replies are kept, and recognised.
        endpoint: where it is.
    """

    def __init__(self, name: str, provider: str, endpoint: Endpoint) -> None:
        self._name = name
        self._provider = provider
        self._endpoint = endpoint

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r}, {self._endpoint.peer.host!r})"

    @property
    def name(self) -> str:
        """What the journal calls it."""
        return self._name

    @property
    def provider(self) -> str:
        """The identity under which its replies are kept, and recognised."""
        return self._provider

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """Ask once.

        Raises:
            ModelError: the request failed.
        """
        if request.settings.tool_mode == "schema":
            from glassloop.models.schema_mode import through_schema

            return through_schema(request, self._ask)
        return self._ask(request)

    def _ask(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        body, reader = self._prepare(request)
        settings, streamed = request.settings, request.stream
        idle = settings.idle_timeout if streamed else None
        return exchange(self._endpoint, body, reader, stream=streamed, timeout=settings.timeout, idle=idle)

    @abstractmethod
    def _prepare(self, request: ModelRequest) -> tuple[bytes, ReplyReader]:
        """The request in the wire format, and what reads the reply to it."""

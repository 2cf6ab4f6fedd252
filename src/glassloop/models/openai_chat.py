"""OpenAI's Chat Completions, and every server that is compatible with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from glassloop.models.chat_history import from_openai as from_openai
from glassloop.models.chat_reply import ChatReplyReader
from glassloop.models.chat_request import ChatRenderer
from glassloop.models.endpoints import bearer, endpoint, join_url
from glassloop.models.exchange import exchange
from glassloop.models.model import FINAL_ANSWER, ModelPart, ModelRequest
from glassloop.models.profiles import Profile, as_profile
from glassloop.models.transport import Transport, host_of

OPENAI_URL = "https://api.openai.com/v1"


class OpenAIChat:
    """A model behind `POST {base_url}/chat/completions`.

    Stateless and shared freely between runs, threads and event loops.

    Args:
        model: its name at the server.
        api_key: sent as a bearer token; None for servers that want none.
        base_url: with `/v1` where the server has it.
        profile: the server's quirks, or the name of a profile; by default those known for the host.
        name: what the journal calls it; `openai:<model>` by default.
        key_variable: the environment variable that holds the key, for error messages.
        headers: more headers for every request.
        transport: how requests travel; aiohttp by default.

    Raises:
        ConfigurationError: the URL is no URL, the key cannot be a header, or there is no such profile.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str = OPENAI_URL,
        profile: Profile | str | None = None,
        name: str | None = None,
        key_variable: str = "OPENAI_API_KEY",
        headers: Mapping[str, str] | None = None,
        transport: Transport | None = None,
    ) -> None:
        url = join_url(base_url, "chat/completions")
        host = host_of(url)
        self._name = name or f"openai:{model}"
        quirks = as_profile(profile, host)
        self._provider = f"openai-chat:{host}" if quirks.one_maker else f"openai-chat:{host}/{model}"
        self._endpoint = endpoint(url, {**bearer(api_key), **(headers or {})}, key_variable, api_key, transport)
        self._renderer = ChatRenderer(model, self._provider, quirks)

    def __repr__(self) -> str:
        return f"OpenAIChat({self._name!r}, {self._endpoint.peer.host!r})"

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
        names = self._renderer.names(request)
        answering = request.output is not None and FINAL_ANSWER in names
        reader = ChatReplyReader(self._endpoint.peer, self._provider, names, answering=answering)
        body = self._renderer.body(request)
        return exchange(self._endpoint, body, reader, stream=request.stream, timeout=request.settings.timeout)

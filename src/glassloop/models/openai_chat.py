"""OpenAI's Chat Completions, and every server that is compatible with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from glassloop.core.lazy import lazy
from glassloop.models.chat_reply import ChatReplyReader
from glassloop.models.chat_request import ChatRenderer
from glassloop.models.endpoints import bearer, endpoint, join_url
from glassloop.models.exchange import ReplyReader
from glassloop.models.hosted import HostedModel
from glassloop.models.model import FINAL_ANSWER, ModelRequest
from glassloop.models.profiles import Profile, as_profile
from glassloop.models.transport import Transport, host_of

if TYPE_CHECKING:
    from glassloop.models.chat_history import from_openai as from_openai

__getattr__, __dir__ = lazy(__name__, {"from_openai": "chat_history"}, root="glassloop.models")

OPENAI_URL = "https://api.openai.com/v1"


class OpenAIChat(HostedModel):
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
        quirks = as_profile(profile, host)
        provider = f"openai-chat:{host}" if quirks.one_maker else f"openai-chat:{host}/{model}"
        where = endpoint(url, {**bearer(api_key), **(headers or {})}, key_variable, api_key, transport)
        super().__init__(name or f"openai:{model}", provider, where)
        self._renderer = ChatRenderer(model, provider, quirks)

    def _prepare(self, request: ModelRequest) -> tuple[bytes, ReplyReader]:
        names = self._renderer.names(request)
        answering = request.output is not None and FINAL_ANSWER in names
        reader = ChatReplyReader(self._endpoint.peer, self._provider, names, answering=answering)
        return self._renderer.body(request), reader

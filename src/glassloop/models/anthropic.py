"""Anthropic's Messages, and servers that are compatible with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from glassloop.core.lazy import lazy
from glassloop.models.endpoints import endpoint, join_url
from glassloop.models.exchange import ReplyReader
from glassloop.models.hosted import HostedModel
from glassloop.models.messages_reply import MessagesReplyReader
from glassloop.models.messages_request import MessagesRenderer, Thoughts
from glassloop.models.model import FINAL_ANSWER, ModelRequest
from glassloop.models.transport import Transport, host_of

if TYPE_CHECKING:
    from glassloop.models.messages_history import from_anthropic as from_anthropic

__getattr__, __dir__ = lazy(__name__, {"from_anthropic": "messages_history"}, root="glassloop.models")

ANTHROPIC_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"

_UNCONSTRAINED = re.compile(r"claude-(?:\d|instant|(?:opus|sonnet)-4-(?:[01]\b|2\d{7}))")
"""Models from before `output_config.format`."""

_THOUGHTS: Mapping[str, Thoughts] = {
    "api.deepseek.com": "demanded",
    "api.kimi.com": "unsigned",
    "api.moonshot.ai": "unsigned",
    "api.moonshot.cn": "unsigned",
}


class Anthropic(HostedModel):
    """A model behind `POST {base_url}/v1/messages`.

    Stateless and shared freely between runs, threads and event loops.

    Args:
        model: its name at the server.
        api_key: sent as `x-api-key`; None for servers that want none.
        base_url: with or without `/v1`.
        caching: whether requests mark what the server should cache (instructions and tools, and the conversation up to
            its end). By default they do at Anthropic's own host, where reading the cache costs a tenth, and nowhere
            else, because compatible servers may refuse the marks.
        name: what the journal calls it; `anthropic:<model>` by default.
        key_variable: the environment variable that holds the key, for error messages.
        headers: more headers for every request, e.g. `anthropic-beta`.
        transport: how requests travel; aiohttp by default.

    Raises:
        ConfigurationError: the URL is no URL, or the key cannot be a header.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str = ANTHROPIC_URL,
        caching: bool | None = None,
        name: str | None = None,
        key_variable: str = "ANTHROPIC_API_KEY",
        headers: Mapping[str, str] | None = None,
        transport: Transport | None = None,
    ) -> None:
        url = join_url(base_url.rstrip("/").removesuffix("/messages").removesuffix("/v1"), "v1/messages")
        host = host_of(url)
        key = {"x-api-key": api_key} if api_key else {}
        every = {"anthropic-version": API_VERSION, **key, **(headers or {})}
        own = host.endswith("anthropic.com")
        # elsewhere models of several makers may stand behind a host, and none can read what another has signed
        provider = f"anthropic-messages:{host}" if own else f"anthropic-messages:{host}/{model}"
        where = endpoint(url, every, key_variable, api_key, transport)
        super().__init__(name or f"anthropic:{model}", provider, where)
        self._renderer = MessagesRenderer(
            model,
            provider,
            own if caching is None else caching,
            constrains=own and not _UNCONSTRAINED.match(model),
            thoughts=_THOUGHTS.get(host, "signed"),
        )

    def _prepare(self, request: ModelRequest) -> tuple[bytes, ReplyReader]:
        tools = self._renderer.tools(request)
        answering = request.output is not None and FINAL_ANSWER in tools.names
        reader = MessagesReplyReader(self._endpoint.peer, self._provider, tools.names, tools.keys, answering=answering)
        return self._renderer.body(request), reader

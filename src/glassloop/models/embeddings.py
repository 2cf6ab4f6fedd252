"""Texts as vectors, from any server that has OpenAI's `/v1/embeddings`."""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from glassloop.core.encoding import dumps
from glassloop.core.errors import ConfigurationError, ModelError
from glassloop.models.endpoints import bearer, endpoint, is_local, join_url
from glassloop.models.exchange import ask
from glassloop.models.failures import not_a_reply, pause_after
from glassloop.models.registry import PROVIDERS, Provider, with_version
from glassloop.models.shapes import array, record
from glassloop.models.transport import Transport, host_of

_ATTEMPTS = 4
_SECONDS = 60.0
_BATCH = 64
_BATCH_OF: Mapping[str, int] = {"qwen": 10}  # help.aliyun.com/zh/model-studio/embedding
_COMPATIBLE = Provider("openai-chat", "")


class Embedder(Protocol):
    """Turns texts into vectors whose directions are near each other where the texts' meanings are."""

    @property
    def name(self) -> str:
        """The model; vectors of one name are compared with each other, and with no others."""
        ...

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector for each text, in order and all of one length.

        Raises:
            ModelError: the server failed; one sentence.
        """
        ...


class OpenAIEmbeddings:
    """An embedding model behind `POST {base_url}/embeddings`. Stateless, shared freely.

    Args:
        model: its name at the server.
        api_key: sent as a bearer token; None for servers that want none.
        base_url: with `/v1` where the server has it.
        name: what its vectors are kept under; the model's name by default.
        key_variable: the environment variable that holds the key, for error messages.
        batch: texts in one request, at most.
        transport: how requests travel; aiohttp by default.

    Raises:
        ConfigurationError: the URL is no URL, or the key cannot be a header.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str = PROVIDERS["openai"].base_url,
        name: str | None = None,
        key_variable: str = "EMBEDDING_API_KEY",
        batch: int = _BATCH,
        transport: Transport | None = None,
    ) -> None:
        url = join_url(base_url, "embeddings")
        self._model = model
        self._name = name or model
        self._batch = batch
        self._endpoint = endpoint(url, bearer(api_key), key_variable, api_key, transport)

    def __repr__(self) -> str:
        return f"OpenAIEmbeddings({self._name!r}, {self._endpoint.peer.host!r})"

    @property
    def name(self) -> str:
        """What its vectors are kept under."""
        return self._name

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """See `Embedder.embed`. A batch that fails and may succeed later (429, 5xx, no connection) is sent again.

        An empty text, which servers refuse, is sent as a blank.
        """
        vectors: list[list[float]] = []
        for start in range(0, len(texts), self._batch):
            batch = [text or " " for text in texts[start : start + self._batch]]
            vectors += self._vectors(await self._patiently(batch), len(batch))
        if len({len(vector) for vector in vectors}) > 1:
            raise not_a_reply(self._endpoint.peer, "vectors of different lengths")
        return vectors

    async def _patiently(self, texts: Sequence[str]) -> Any:
        body = dumps({"model": self._model, "input": texts})
        attempt = 1
        while True:
            try:
                return await ask(self._endpoint, body, _SECONDS)
            except ModelError as error:
                wait = pause_after(error, attempt) if attempt < _ATTEMPTS else None
                if wait is None:
                    raise
            await asyncio.sleep(wait)
            attempt += 1

    def _vectors(self, answer: Any, count: int) -> list[list[float]]:
        items = [record(item) for item in array(record(answer).get("data"))]
        items.sort(key=lambda item: item["index"] if isinstance(item.get("index"), int) else 0)
        vectors = [_vector(item.get("embedding")) for item in items]
        if len(vectors) != count or not all(vectors):
            raise not_a_reply(self._endpoint.peer, "something that is not a vector for each text")
        return vectors


def resolve_embedder(spec: str | Embedder | None = None, env: Mapping[str, str] | None = None) -> Embedder | None:
    """The embedding model that is meant, if any.

    `provider:model` names a model of a provider of models/registry.py, a bare name one of the compatible server at
    `EMBEDDING_ENDPOINT`. Without a name `EMBEDDING_MODEL` is read. `EMBEDDING_ENDPOINT` takes the place of the
    provider's base URL and `EMBEDDING_API_KEY` of its key.

    Args:
        spec: a name; or an embedder, which is returned as it is.
        env: the environment, by default the process's.

    Returns:
        None where no model is named: search is by words alone.

    Raises:
        ConfigurationError: the provider is unknown, or something is missing; one sentence that says what to set.
    """
    if spec is not None and not isinstance(spec, str):
        return spec
    variables = os.environ if env is None else env
    name = (spec if spec is not None else variables.get("EMBEDDING_MODEL", "")).strip()
    moved = variables.get("EMBEDDING_ENDPOINT", "").strip()
    if not name:
        if moved:
            raise ConfigurationError("EMBEDDING_ENDPOINT is set, but no model is named: set EMBEDDING_MODEL too.")
        return None
    provider, model = _provider(name, moved)
    base_url = moved or variables.get(provider.base_variable, "").strip() or provider.base_url
    own_key = variables.get("EMBEDDING_API_KEY", "").strip()
    key = own_key or variables.get(provider.key, "").strip()
    if not key and provider.key and not is_local(host_of(base_url if "://" in base_url else f"//{base_url}")):
        raise ConfigurationError(f"The embedding model {name} needs a key: set {provider.key} (or EMBEDDING_API_KEY).")
    return OpenAIEmbeddings(
        model,
        api_key=key or None,
        base_url=with_version(base_url),
        name=name,
        key_variable="EMBEDDING_API_KEY" if own_key or not provider.key else provider.key,
        batch=_BATCH_OF.get(name.partition(":")[0], _BATCH),
    )


def _provider(name: str, moved: str) -> tuple[Provider, str]:
    """Whose model it is, and its name there."""
    prefix, colon, model = name.partition(":")
    provider = PROVIDERS.get(prefix) if colon else None
    if provider is None:
        if not moved:
            known = ", ".join(key for key, each in sorted(PROVIDERS.items()) if each.wire == "openai-chat")
            raise ConfigurationError(
                f"The embedding model {name!r} names no known provider: write provider:model with one of {known}, "
                "or set EMBEDDING_ENDPOINT to a server that is compatible with OpenAI's."
            )
        return _COMPATIBLE, name
    if not model:
        raise ConfigurationError(
            f"The embedding model {name!r} names a provider and no model; write e.g. openai:text-embedding-3-small."
        )
    if provider.wire != "openai-chat":
        raise ConfigurationError(f"{prefix} has no embedding models: name one of another provider.")
    return provider, model


def _vector(value: Any) -> list[float]:
    """Numbers, or float32 in base64; empty for anything else."""
    if isinstance(value, str):
        try:
            data = base64.b64decode(value, validate=True)
            return list(struct.unpack(f"<{len(data) // 4}f", data))
        except (binascii.Error, struct.error):
            return []
    numbers = cast("list[Any]", value) if isinstance(value, list) else []
    plain = [float(number) for number in numbers if isinstance(number, int | float)]
    return plain if len(plain) == len(numbers) else []

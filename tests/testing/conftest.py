"""A bare HTTP client for the model server: what no SDK would send, this does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import aiohttp
import pytest

from glassloop.testing import ModelServer

Post = Callable[..., Coroutine[Any, Any, tuple[int, Any, dict[str, str]]]]


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def post(session: aiohttp.ClientSession) -> Post:
    """Post a body to a server; returns the status, the JSON and the headers of the answer."""

    async def send(server: ModelServer, path: str, body: Any, **headers: str) -> tuple[int, Any, dict[str, str]]:
        data = body if isinstance(body, bytes) else None
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url, payload = f"{server.anthropic_url}{path}", None if data is not None else body
        async with session.post(url, json=payload, data=data, headers=named) as response:
            return response.status, await response.json(), dict(response.headers)

    return send

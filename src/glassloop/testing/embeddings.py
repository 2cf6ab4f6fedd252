"""OpenAI's Embeddings as the model server speaks them: equal words give near vectors, always the same."""

from __future__ import annotations

import base64
import hashlib
import math
import struct
from collections.abc import Mapping
from typing import Any, cast

from glassloop.core.fulltext import tokens
from glassloop.testing.answer import estimate_tokens

SIZE = 256
MOST_TEXTS = 2048


def embedding(text: str, size: int = SIZE) -> list[float]:
    """A vector of length 1: each token of `text` (core/fulltext.py) adds 1 or -1 in the place that its hash says."""
    sums = [0.0] * size
    for token in tokens(text) or [text]:
        hashed = int.from_bytes(hashlib.blake2b(token.encode("utf-8", "replace"), digest_size=8).digest())
        sums[hashed // 2 % size] += 1.0 if hashed % 2 else -1.0
    length = math.sqrt(sum(value * value for value in sums)) or 1.0
    return [value / length for value in sums]


def embedding_violations(body: object) -> list[str]:
    """One readable sentence for each rule of OpenAI's reference that a request breaks."""
    if not isinstance(body, dict):
        return ["The request body is not a JSON object."]
    request = cast("dict[str, Any]", body)
    found = [] if isinstance(request.get("model"), str) else ["You must provide a model parameter."]
    texts = _texts(request)
    if not 0 < len(texts) <= MOST_TEXTS or not all(isinstance(text, str) for text in texts):
        found.append(f"'input' must be a string or an array of 1 to {MOST_TEXTS} strings.")
    elif not all(texts):
        found.append("'input' cannot be an empty string.")
    if request.get("encoding_format", "float") not in ("float", "base64"):
        found.append("'encoding_format' must be 'float' or 'base64'.")
    size = request.get("dimensions", SIZE)
    if not isinstance(size, int) or size < 1:
        found.append("'dimensions' must be a positive integer.")
    return found


def embedding_answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request that breaks no rule."""
    texts = _texts(request)
    vectors = [embedding(text, request.get("dimensions", SIZE)) for text in texts]
    coded = [_base64(vector) for vector in vectors] if request.get("encoding_format") == "base64" else vectors
    used = sum(estimate_tokens(text) for text in texts)
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": index, "embedding": value} for index, value in enumerate(coded)],
        "model": request["model"],
        "usage": {"prompt_tokens": used, "total_tokens": used},
    }


def _texts(request: Mapping[str, Any]) -> list[Any]:
    given: Any = request.get("input")
    return cast("list[Any]", given) if isinstance(given, list) else [given]


def _base64(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()

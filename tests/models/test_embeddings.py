"""Embedding models: over the wire of the model server, and against answers that no server would give on purpose."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import openai
import pytest

from glassloop.core.errors import ConfigurationError, ModelError
from glassloop.models.embeddings import OpenAIEmbeddings, resolve_embedder
from glassloop.models.fake_transport import FakeAnswer, FakeTransport
from glassloop.testing import ModelServer
from glassloop.testing.embeddings import SIZE, embedding


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(script=[], api_key="sk-right") as server:
        yield server


def answer(*vectors: Any) -> FakeAnswer:
    return FakeAnswer.json({"data": [{"index": at, "embedding": vector} for at, vector in enumerate(vectors)]})


def model(*answers: FakeAnswer | ModelError, **options: Any) -> tuple[OpenAIEmbeddings, FakeTransport]:
    transport = FakeTransport(*answers)
    return OpenAIEmbeddings("m", base_url="http://embed.test/v1", transport=transport, **options), transport


# The model server, as the official client sees it


@pytest.mark.parametrize("encoding", ["base64", "float"])
def test_the_official_client_reads_both_encodings(server: ModelServer, encoding: Any) -> None:
    with openai.OpenAI(base_url=server.url, api_key="sk-right", max_retries=0) as client:
        reply = client.embeddings.create(model="m", input=["退款 refund", "b"], encoding_format=encoding)
        one = client.embeddings.create(model="m", input="退款 refund", dimensions=8)
    assert [item.index for item in reply.data] == [0, 1]
    vector: Any = reply.data[0].embedding
    if encoding == "base64":  # asked for explicitly, the client hands it on
        vector = struct.unpack(f"<{SIZE}f", base64.b64decode(vector))
    assert list(vector) == pytest.approx(embedding("退款 refund"), abs=1e-6)
    assert len(one.data[0].embedding) == 8
    assert reply.usage.total_tokens > 0
    assert server.violations == []


def test_the_default_of_the_official_client_works(server: ModelServer) -> None:
    with openai.OpenAI(base_url=server.url, api_key="sk-right", max_retries=0) as client:
        reply = client.embeddings.create(model="m", input=["a"])
    assert reply.data[0].embedding == pytest.approx(embedding("a"), abs=1e-6)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"input": [""], "model": "m"}, "empty string"),
        ({"input": [], "model": "m"}, "1 to 2048"),
        ({"input": ["a"] * 2049, "model": "m"}, "1 to 2048"),
        ({"input": ["a"], "model": "m", "dimensions": 0}, "dimensions"),
    ],
)
def test_what_openai_refuses_is_refused(server: ModelServer, request_: Mapping[str, Any], message: str) -> None:
    with (
        openai.OpenAI(base_url=server.url, api_key="sk-right", max_retries=0) as client,
        pytest.raises(openai.BadRequestError, match=message),
    ):
        client.embeddings.create(**request_)


def test_a_wrong_key_is_refused(server: ModelServer) -> None:
    with (
        openai.OpenAI(base_url=server.url, api_key="sk-wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.embeddings.create(model="m", input="a")


# Ours


async def test_texts_become_vectors_in_batches(server: ModelServer) -> None:
    texts = [f"text {number}" for number in range(5)]
    embedder = OpenAIEmbeddings("m", api_key="sk-right", base_url=server.url, batch=2)
    vectors = await embedder.embed(texts)
    assert vectors == [pytest.approx(embedding(text)) for text in texts]
    assert [len(request.body["input"]) for request in server.requests] == [2, 2, 1]
    assert await embedder.embed([]) == []
    assert server.violations == []


async def test_an_empty_text_has_a_vector_too(server: ModelServer) -> None:
    embedder = OpenAIEmbeddings("m", api_key="sk-right", base_url=server.url)
    assert len(await embedder.embed(["", "a"])) == 2


async def test_a_wrong_key_is_one_sentence_without_it(server: ModelServer) -> None:
    embedder = OpenAIEmbeddings("m", api_key="sk-wrong-wrong", base_url=server.url)
    with pytest.raises(ModelError, match="set EMBEDDING_API_KEY to a valid key") as caught:
        await embedder.embed(["a"])
    assert caught.value.kind == "auth"
    assert "sk-wrong" not in str(caught.value)
    assert len(server.requests) == 1


async def test_base64_and_any_order_are_understood() -> None:
    packed = base64.b64encode(struct.pack("<2f", 0.5, -1.0)).decode()
    items = [{"index": 1, "embedding": [3, 4]}, {"index": 0, "embedding": packed}]
    embedder, _ = model(FakeAnswer.json({"data": items}))
    assert await embedder.embed(["a", "b"]) == [[0.5, -1.0], [3.0, 4.0]]


async def test_passing_failures_are_tried_again() -> None:
    busy = FakeAnswer.json({"error": {"message": "busy"}}, status=429, headers={"retry-after": "0"})
    cut = ModelError("cut", kind="connection", retry_after=0.0)
    embedder, transport = model(busy, cut, answer([1.0]))
    assert await embedder.embed(["a"]) == [[1.0]]
    assert [post.json for post in transport.posts] == [{"model": "m", "input": ["a"]}] * 3


async def test_it_gives_up_in_the_end() -> None:
    busy = FakeAnswer.json({"error": {"message": "busy"}}, status=503, headers={"retry-after": "0"})
    embedder, transport = model(*[busy] * 9)
    with pytest.raises(ModelError, match="busy"):
        await embedder.embed(["a"])
    assert len(transport.posts) == 4


@pytest.mark.parametrize(
    "reply",
    [
        FakeAnswer.json({"data": []}),
        FakeAnswer.json({"data": [{"embedding": ["x"]}]}),
        FakeAnswer.json({"data": [{"embedding": "no base64!"}]}),
        FakeAnswer.json({"data": [{"embedding": "AAA="}]}),
        FakeAnswer.json({"data": [{"embedding": []}]}),
        FakeAnswer.json([]),
        answer([1.0], [2.0]),
    ],
)
async def test_an_answer_that_is_none(reply: FakeAnswer) -> None:
    embedder, _ = model(reply)
    with pytest.raises(ModelError, match=r"embed\.test answered with something that is not a vector") as caught:
        await embedder.embed(["a"])
    assert caught.value.kind == "protocol"


async def test_vectors_of_different_lengths_are_refused() -> None:
    embedder, _ = model(answer([1.0]), answer([1.0, 2.0]), batch=1)
    with pytest.raises(ModelError, match="different lengths"):
        await embedder.embed(["a", "b"])


# By name


def test_no_name_means_words_alone() -> None:
    assert resolve_embedder(None, {}) is None
    assert resolve_embedder(None, {"EMBEDDING_MODEL": " "}) is None


def test_an_embedder_is_itself() -> None:
    embedder, _ = model()
    assert resolve_embedder(embedder, {}) is embedder


@pytest.mark.parametrize(
    ("env", "shown"),
    [
        (
            {"EMBEDDING_MODEL": "openai:text-embedding-3-small", "OPENAI_API_KEY": "sk-1"},
            "OpenAIEmbeddings('openai:text-embedding-3-small', 'api.openai.com')",
        ),
        (
            {"EMBEDDING_MODEL": "bge-m3", "EMBEDDING_ENDPOINT": "localhost:9000"},
            "OpenAIEmbeddings('bge-m3', 'localhost:9000')",
        ),
        (
            {"EMBEDDING_MODEL": "ollama:nomic-embed-text"},
            "OpenAIEmbeddings('ollama:nomic-embed-text', 'localhost:11434')",
        ),
        (
            {"EMBEDDING_MODEL": "qwen:text-embedding-v4", "EMBEDDING_API_KEY": "sk-2"},
            "OpenAIEmbeddings('qwen:text-embedding-v4', 'dashscope.aliyuncs.com')",
        ),
    ],
)
def test_the_environment_names_it(env: Mapping[str, str], shown: str) -> None:
    assert repr(resolve_embedder(None, env)) == shown


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"EMBEDDING_MODEL": "openai:x"}, "set OPENAI_API_KEY"),
        ({"EMBEDDING_MODEL": "bge-m3"}, "EMBEDDING_ENDPOINT"),
        ({"EMBEDDING_MODEL": "openai:", "OPENAI_API_KEY": "k"}, "names a provider and no model"),
        ({"EMBEDDING_MODEL": "anthropic:x", "ANTHROPIC_API_KEY": "k"}, "has no embedding models"),
        ({"EMBEDDING_ENDPOINT": "localhost:9000"}, "set EMBEDDING_MODEL"),
        ({"EMBEDDING_MODEL": "m", "EMBEDDING_ENDPOINT": "ftp://x"}, "not an http"),
        ({"EMBEDDING_MODEL": "openai:x", "OPENAI_API_KEY": "a b"}, "OPENAI_API_KEY holds characters"),
    ],
)
def test_what_is_missing_is_one_sentence(env: Mapping[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        resolve_embedder(None, env)


async def test_an_endpoint_without_a_path_gets_v1(server: ModelServer) -> None:
    env = {"EMBEDDING_MODEL": "m", "EMBEDDING_ENDPOINT": server.anthropic_url, "EMBEDDING_API_KEY": "sk-right"}
    embedder = resolve_embedder(None, env)
    assert embedder is not None
    assert len(await embedder.embed(["a"])) == 1
    assert [request.path for request in server.requests] == ["/v1/embeddings"]

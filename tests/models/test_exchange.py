from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

import pytest

from glassloop.core.errors import ModelError, ScriptError
from glassloop.core.messages import UserMessage
from glassloop.models.fake_transport import FakeAnswer, FakeTransport
from glassloop.models.model import ModelPart, ModelRequest, ModelSettings, TextPart, complete
from glassloop.models.openai_chat import OpenAIChat

STREAM = ModelRequest((UserMessage("q"),), stream=True)
HELLO = b'data: {"choices":[{"delta":{"content":"hello"}}]}\n\n'
END = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
KIND = {"content-type": "text/event-stream"}


def broken() -> ModelError:
    return ModelError("the line broke", kind="connection")


def asking(transport: FakeTransport) -> OpenAIChat:
    return OpenAIChat("m", base_url="https://one.test", transport=transport)


async def test_a_response_is_let_go_when_the_reply_is_there() -> None:
    transport = FakeTransport(FakeAnswer([HELLO, END, b"rest"], headers=KIND))
    async for part in asking(transport).stream(STREAM):
        if not isinstance(part, TextPart):
            assert transport.responses[0].closed
    assert transport.responses[0].unread == 0


async def test_leaving_early_lets_the_response_go() -> None:
    transport = FakeTransport(FakeAnswer([HELLO, HELLO, END], headers=KIND))
    async with aclosing(cast("AsyncGenerator[ModelPart]", asking(transport).stream(STREAM))) as parts:
        assert await anext(parts) == TextPart("hello")
    assert transport.responses[0].closed
    assert transport.responses[0].unread == 2


async def test_text_is_given_before_the_next_read() -> None:
    transport = FakeTransport(FakeAnswer([HELLO, END], headers=KIND))
    parts = aiter(asking(transport).stream(STREAM))
    assert await anext(parts) == TextPart("hello")
    assert transport.responses[0].unread == 1


async def test_a_line_that_breaks_after_text() -> None:
    transport = FakeTransport(FakeAnswer([HELLO, broken()], headers=KIND))
    with pytest.raises(ModelError, match="the line broke") as caught:
        await complete(asking(transport), STREAM)
    assert caught.value.partial == "hello"
    assert transport.responses[0].closed


async def test_a_line_that_breaks_after_the_end_of_the_reply_does_no_harm() -> None:
    finished = END.partition(b"data: [DONE]")[0]
    transport = FakeTransport(FakeAnswer([HELLO, finished, broken()], headers=KIND))
    assert (await complete(asking(transport), STREAM)).text == "hello"


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json", "text/plain", ""])
async def test_what_an_answer_is_its_beginning_tells_and_not_its_content_type(kind: str) -> None:
    """Public: apache/rocketmq-dashboard#2178 and gateways that answer a stream with an error in JSON."""
    headers = {"content-type": kind}
    failed = FakeTransport(
        FakeAnswer([b'\n \n{"error": {"message": "quota', b' gone", "code": 402}}'], headers=headers)
    )
    with pytest.raises(ModelError, match="quota gone"):
        await complete(asking(failed), STREAM)
    streamed = FakeTransport(FakeAnswer([b"\n", b": wait\n\n", HELLO, END], headers=headers))
    assert (await complete(asking(streamed), STREAM)).text == "hello"


async def test_a_byte_order_mark_before_an_answer_in_one_piece_is_nothing() -> None:
    body = b'\xef\xbb\xbf{"choices":[{"message":{"content":"hello"},"finish_reason":"stop"}]}'
    assert (await complete(asking(FakeTransport(FakeAnswer([body]))), STREAM)).text == "hello"


async def test_a_server_that_leaves_out_the_blank_lines_between_its_events() -> None:
    stream = (HELLO + END).replace(b"\n\n", b"\n")
    for pieces in ([stream], [HELLO, END.replace(b"\n\n", b"\n")]):
        transport = FakeTransport(FakeAnswer(pieces, headers=KIND))
        assert (await complete(asking(transport), STREAM)).text == "hello"


async def test_no_connection() -> None:
    with pytest.raises(ModelError, match="the line broke"):
        await complete(asking(FakeTransport(broken())), STREAM)


async def test_an_error_whose_body_breaks_off_is_still_that_error() -> None:
    transport = FakeTransport(FakeAnswer([b"{", broken()], 503, {"retry-after": "2"}))
    with pytest.raises(ModelError, match="HTTP 503") as caught:
        await complete(asking(transport), STREAM)
    assert (caught.value.kind, caught.value.retry_after) == ("overloaded", 2.0)
    assert transport.responses[0].closed


async def test_of_an_error_without_end_only_the_beginning_is_read() -> None:
    """Some servers quote the whole request in what they answer to it."""
    endless = [b'{"detail": "' + b"x" * 1000, *([b"y" * (1 << 20)] * 5)]
    transport = FakeTransport(FakeAnswer(endless, 422))
    with pytest.raises(ModelError, match="HTTP 422"):
        await complete(asking(transport), STREAM)
    assert transport.responses[0].unread >= 3
    assert transport.responses[0].closed


async def test_exactly_one_attempt_with_the_time_that_was_given() -> None:
    transport = FakeTransport(FakeAnswer(status=500))
    request = ModelRequest((UserMessage("q"),), settings=ModelSettings(timeout=7))
    with pytest.raises(ModelError):
        await complete(asking(transport), request)
    assert [post.timeout for post in transport.posts] == [7]
    with pytest.raises(ScriptError, match="asked 2 times"):
        await complete(asking(transport), request)


async def test_without_a_stream_nothing_is_partial() -> None:
    transport = FakeTransport(FakeAnswer([HELLO, broken()], headers=KIND))
    with pytest.raises(ModelError) as caught:
        await complete(asking(transport), ModelRequest((UserMessage("q"),)))
    assert caught.value.partial == ""

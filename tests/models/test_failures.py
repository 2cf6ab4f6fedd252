from __future__ import annotations

import re
import time
from email.utils import formatdate
from typing import Any

import pytest

from glassloop.core.encoding import dumps
from glassloop.core.errors import ModelError
from glassloop.models.failures import Peer, error_failure, http_failure, pause_after, retry_after

PEER = Peer(
    "https://user:pw@api.example.com:8443/v1/chat/completions?key=hidden", "EXAMPLE_API_KEY", "sk-secret-0123456789"
)


def failed(status: int, body: Any = b"", headers: dict[str, str] | None = None) -> ModelError:
    data = body if isinstance(body, bytes) else dumps(body)
    return http_failure(PEER, status, headers or {}, data)


def error(message: str = "words", **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


KINDS: list[tuple[int, Any, str]] = [
    (400, error(), "invalid_request"),
    (400, error("messages: text content blocks must be non-empty", type="invalid_request_error"), "invalid_request"),
    (
        400,
        error("This model's maximum context length is 8192 tokens", code="context_length_exceeded"),
        "context_length",
    ),
    (400, error("prompt is too long: 210000 tokens > 200000 maximum"), "context_length"),
    (400, error("input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000"), "context_length"),
    (400, error("The input token count (1200000) exceeds the maximum number of tokens allowed"), "context_length"),
    (400, error("Invalid request: Your request exceeded model token limit: 8192"), "context_length"),
    (400, error("Range of input length should be [1, 30720]"), "context_length"),
    (400, {"error": {"code": "1261", "message": "Prompt 超长"}}, "context_length"),
    (400, {"error": {"code": 400, "message": "the request exceeds the available context size"}}, "context_length"),
    (500, error("Context size has been exceeded.", type="exceed_context_size_error"), "context_length"),
    (413, b"<html>413 Request Entity Too Large</html>", "context_length"),
    (
        400,
        error("tool call could not be parsed", code="tool_use_failed", failed_generation="<function>"),
        "bad_tool_call",
    ),
    (400, error("Failed to call a function. Please adjust your prompt."), "bad_tool_call"),
    (500, error("Failed to parse tool call arguments as JSON"), "bad_tool_call"),
    (500, error("Failed to parse input at pos 184: <|channel|>..."), "bad_tool_call"),  # pwilkin/llama.cpp#5
    (  # ggml-org/llama.cpp#25072
        500,
        error("The model produced output that does not match the expected peg-gemma4 format"),
        "bad_tool_call",
    ),
    (  # strands-agents/harness-sdk#649
        424,
        error("Model produced invalid sequence as part of ToolUse. Please refer to the troubleshooting guide."),
        "bad_tool_call",
    ),
    (400, error("Malformed function call: print(default_api.add(a=2))"), "bad_tool_call"),
    (400, error("Your credit balance is too low to access the Anthropic API."), "payment"),
    (401, error("Incorrect API key provided"), "auth"),
    (402, error("Insufficient Balance"), "payment"),
    (403, error("forbidden"), "auth"),
    (404, error("The model `x` does not exist", code="model_not_found"), "not_found"),
    (405, b"", "invalid_request"),
    (408, b"", "overloaded"),
    (409, b"", "overloaded"),
    (
        422,
        {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]},
        "invalid_request",
    ),
    (429, error("Rate limit reached for tokens per min. Limit: 30000 / context"), "rate_limit"),
    (429, error("You exceeded your current quota", code="insufficient_quota"), "payment"),
    (429, error("You exceeded your current quota, please retry in 20 s", status="RESOURCE_EXHAUSTED"), "rate_limit"),
    (429, error("Your account is suspended", type="exceeded_current_quota_error"), "payment"),
    (429, error("Rate limit of 50000 tokens per 60s exceeded. Please wait 1 second."), "rate_limit"),
    (
        429,
        error(
            "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 61337. The input or output "
            "tokens must be reduced in order to run successfully.",
            code="rate_limit_exceeded",
        ),
        "context_length",
    ),
    (400, error("API key not valid. Please pass a valid API key.", status="INVALID_ARGUMENT"), "auth"),
    (400, error("Incorrect API key provided: xa***. You can obtain one from the console."), "auth"),
    (400, error("some/model is not a valid model ID"), "not_found"),
    (400, error("Model Not Exist", type="invalid_request_error"), "not_found"),
    (400, error("Unsupported parameter: 'max_tokens' is not supported with this model."), "invalid_request"),
    (400, error("You have reached your specified API usage limits."), "payment"),
    (400, error("The response was filtered due to the prompt.", code="content_filter"), "content_filter"),
    (400, error("Input data may contain inappropriate content.", code="data_inspection_failed"), "content_filter"),
    (400, error("Content Exists Risk", type="invalid_request_error"), "content_filter"),
    (400, error("Output blocked by content filtering policy"), "content_filter"),
    (403, error("Your chosen model requires moderation and your input was flagged"), "content_filter"),
    (500, error("error parsing tool call: raw='{\"a\":', err=unexpected end of JSON input"), "bad_tool_call"),
    (500, b"Internal Server Error", "overloaded"),
    (502, b"<html><h1>Bad gateway</h1></html>", "overloaded"),
    (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded"),
    (307, b"", "invalid_request"),
]


@pytest.mark.parametrize(("status", "body", "kind"), KINDS)
def test_kinds_of_failures(status: int, body: Any, kind: str) -> None:
    caught = failed(status, body)
    assert (caught.kind, caught.status) == (kind, status)
    assert caught.retryable == (kind in ("rate_limit", "overloaded"))


@pytest.mark.parametrize(
    ("described", "kind"),
    [
        ({"code": 502, "message": "x"}, "overloaded"),
        ({"code": "429", "message": "x"}, "rate_limit"),
        ({"code": 401, "message": "x"}, "auth"),
        ({"code": 403, "message": "x"}, "auth"),
        ({"code": 400, "message": "x"}, "invalid_request"),
        ({"status_code": 400, "code": "tool_use_failed", "message": "x"}, "bad_tool_call"),
        ({"type": "overloaded_error", "message": "Overloaded"}, "overloaded"),
        ({"type": "rate_limit_error", "message": "x"}, "rate_limit"),
        ({"type": "authentication_error", "message": "x"}, "auth"),
        ({"type": "request_too_large", "message": "x"}, "context_length"),
        ({"code": "context_length_exceeded", "message": "x"}, "context_length"),
        ({"code": "insufficient_quota", "message": "x"}, "payment"),
        ({"message": "something new"}, "overloaded"),
        ("something new", "overloaded"),
        (None, "overloaded"),
    ],
)
def test_errors_inside_a_200_are_classified_like_statuses(described: Any, kind: str) -> None:
    assert error_failure(PEER, described).kind == kind


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (error("the words"), "the words"),
        ({"error": "the words"}, "the words"),
        ({"message": "the words"}, "the words"),
        ({"detail": "the words"}, "the words"),
        ({"detail": [{"loc": ["body", "n"], "msg": "the words"}]}, "body.n: the words"),
        ({"errors": [{"message": "the words"}]}, "the words"),
        ([error("the words")], "the words"),
        (error("the words", metadata={"raw": "of another"}), "the words (of another)"),
        (b"the\nwords", "the words"),
        (b"<!DOCTYPE html><html>" + b"x" * 9999, "an HTML page"),
        (b"", "no reason given"),
        ({}, "no reason given"),
        (error("w" * 900), "w" * 300 + "…"),
    ],
)
def test_the_servers_words_are_found_and_kept_short(body: Any, words: str) -> None:
    assert str(failed(400, body)).endswith(f"(api.example.com:8443, HTTP 400): {words}")


def test_a_wrong_key_names_the_variable_and_shows_no_key() -> None:
    for said in ("sk-secret-0123456789", "sk-secr*************6789", "Bearer sk-secret-0123456789"):
        text = str(failed(401, error(f"Incorrect API key provided: {said}.")))
        assert "set EXAMPLE_API_KEY to a valid key" in text
        assert "Incorrect API key provided" in text
        assert "secr" not in text
        assert "hidden" not in text


@pytest.mark.parametrize(
    "said",
    [
        "API key AIzaSyA-0123456789abcdefghij is invalid",
        "GET https://h.test/v1?key=0123456789abcdef&alt=sse failed",
        "token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl has expired",
    ],
)
def test_keys_of_others_are_not_shown_either(said: str) -> None:
    """pymc-labs/decision-hub#283: a proxy's answer quotes the key that it uses itself."""
    text = str(failed(503, error(said)))
    assert "[key]" in text
    assert not re.search(r"0123456789|eyJ", text)


@pytest.mark.parametrize("headers", [{"retry-after": "0"}, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}])
def test_a_server_that_asks_for_no_wait_is_not_hammered(headers: dict[str, str]) -> None:
    """DouglasdeMoura/chroncal#105: what the server asks for is the least to wait, and the back-off goes on."""
    pauses = [pause_after(failed(429, b"", headers), attempt) for attempt in (1, 2, 3)]
    assert all(pause is not None and pause >= 0.25 * 2**number for number, pause in enumerate(pauses))


def test_the_peer_does_not_show_its_key() -> None:
    assert "secret" not in repr(PEER)


def test_words_are_not_taken_for_keys() -> None:
    short = Peer("http://localhost", "", "k")
    assert "Token limit" in str(error_failure(short, {"message": "Token limit", "code": 400}))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 99 Oct 2015 07:28:00 GMT"}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_retry_after_a_date() -> None:
    wait = retry_after({"retry-after": formatdate(time.time() + 30, usegmt=True)})
    assert wait is not None
    assert 27 < wait <= 30
    assert failed(429, b"", {"retry-after": "7"}).retry_after == 7.0

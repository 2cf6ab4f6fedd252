"""What a provider's error answer means: one sentence, a kind, and how long to wait."""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from glassloop.core.encoding import loads
from glassloop.core.errors import ModelError, ModelErrorKind
from glassloop.models.shapes import array, record
from glassloop.models.transport import host_of

_LONGEST_MESSAGE = 300
_SHORTEST_KEY = 6  # shorter ones are stand-ins, and parts of words

_CONTEXT_LENGTH = re.compile(
    r"context[_ ](length|window|size|limit)|maximum (context|prompt|input)|prompt (is )?too (long|large)"
    r"|(input|request|conversation|messages?) (is |are )?too (long|large)|input length|input token count"
    r"|too many (input |prompt )?tokens|exceeded (the )?model token limit|reduce the length|max_prompt_tokens"
    r"|exceed_context|(输入|上下文|prompt).{0,6}(超|过)长|超过.{0,8}(长度|上下文)",
    re.IGNORECASE,
)
_NEVER_FITS = re.compile(r"request too large|must be reduced in order to run", re.IGNORECASE)
_BAD_TOOL_CALL = re.compile(
    r"tool_use_failed|malformed[_ ]function[_ ]call|tool call validation failed|error parsing tool call"
    r"|invalid sequence as part of ToolUse|failed to parse input at pos|output that does not match the expected"
    r"|(fail(ed|ure) to|could not|cannot|unable to) (be )?(parse|call|generate|validate)d?[^.\n]{0,30}(tool|function)"
    r"|(tool|function)[_ ]call[^.\n]{0,20}(could not|cannot) be parsed",
    re.IGNORECASE,
)
_NO_MONEY = re.compile(
    r"insufficient[_ ](quota|balance|funds|credits?)|billing|credit balance|exceeded_current_quota"
    r"|requires more credits|api usage limits|余额不足|欠费",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(
    r"(invalid|incorrect|wrong|expired)[ _]api[ _-]?key"
    r"|api[ _-]?key (is )?(not valid|not found|invalid|incorrect|expired)",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(r"model_not_found|\bmodel\b[^.\n]{0,100}\bnot (exist|found)\b|not a valid model", re.IGNORECASE)
_FILTERED = re.compile(
    r"content_filter|content (management|filtering|usage) policy|content_policy_violation|data_inspection_failed"
    r"|content exists risk|requires moderation|不安全或敏感|敏感内容",
    re.IGNORECASE,
)
_KIND_OF_TYPE: Mapping[str, ModelErrorKind] = {
    "api_error": "overloaded",
    "authentication_error": "auth",
    "billing_error": "payment",
    "invalid_api_key": "auth",
    "invalid_request_error": "invalid_request",
    "model_not_found": "not_found",
    "not_found_error": "not_found",
    "overloaded_error": "overloaded",
    "permission_error": "auth",
    "rate_limit_error": "rate_limit",
    "rate_limit_exceeded": "rate_limit",
    "request_too_large": "context_length",
    "server_error": "overloaded",
    "timeout_error": "overloaded",
}
_KIND_OF_STATUS: Mapping[int, ModelErrorKind] = {
    401: "auth",
    402: "payment",
    403: "auth",
    404: "not_found",
    408: "overloaded",
    409: "overloaded",
    410: "not_found",
    413: "context_length",
    425: "overloaded",
    429: "rate_limit",
}
_WORDS = ("detail", "error_msg", "msg", "errors")
"""Where servers put what is wrong, beside `message` and `error`."""

_KEY_LIKE = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|nvapi)[-_][A-Za-z0-9_*.\-]{6,}|\bBearer \S{6,}|\bAIza[\w*.\-]{6,}|\beyJ[\w\-]{8,}\.[\w.\-]+"
    r"|(?<=[?&]key=)[^\s&\"']{6,}"
)


@dataclass(frozen=True, slots=True)
class Peer:
    """Whom a model talks to, as far as error messages need it.

    Args:
        url: where requests go.
        key_variable: the environment variable that holds the key, for the message that asks for it.
        api_key: taken out of every message.
    """

    url: str
    key_variable: str
    api_key: str = field(repr=False)

    @property
    def host(self) -> str:
        """Host and port."""
        return host_of(self.url)


def http_failure(peer: Peer, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
    """The error behind an answer whose status is not 200."""
    if 300 <= status < 400:
        text = f"{peer.host} answered with a redirect (HTTP {status}); set the base URL to where the API really is."
        return ModelError(text, kind="invalid_request", status=status)
    return _failure(peer, _body(body), status, status, retry_after(headers))


def error_failure(peer: Peer, error: Any) -> ModelError:
    """The error behind an error object inside an answer that began with 200.

    Its code (or `status_code`) counts as a status and its type as Anthropic and OpenAI name them; an error of unknown
    kind counts as a passing one.
    """
    described = record(error)
    codes = (_status(described.get(key)) for key in ("status_code", "code", "status"))
    status = next(filter(None, codes), None)
    return _failure(peer, {"error": error}, None, status, None)


def broken_off(peer: Peer) -> ModelError:
    """The stream ended before the reply did."""
    return ModelError(f"{peer.host} broke off its answer before the reply was complete.", kind="connection")


def not_a_reply(peer: Peer, what: str) -> ModelError:
    """The answer is not in the provider's format."""
    return ModelError(f"{peer.host} answered with {what}; check the base URL and the model.", kind="protocol")


def no_reply(peer: Peer, body: Any, what: str) -> ModelError:
    """The answer, which began with 200, holds no reply: the error that it describes, or that it holds `what`."""
    described = _error_of(body)
    return error_failure(peer, described) if _message_of(body, described) else not_a_reply(peer, what)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait: `retry-after-ms`, or `Retry-After` as number or date (RFC 9110, 10.2.3)."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    if value is None:
        return None
    seconds = _number(value)
    if seconds is not None:
        return seconds
    from email.utils import parsedate_to_datetime  # a date is rare, and this loads ten modules

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None


def pause_after(error: ModelError, attempt: int, *, delay: float = 0.5, longest: float = 60.0) -> float | None:
    """Seconds until the same request is worth another attempt; None if it is not.

    As long as the server asks (`Retry-After`), else, or where it asks for none, exponentially longer with jitter.

    Args:
        error: what the attempt came to.
        attempt: its number, from 1.
        delay: seconds after the first attempt, doubled for each further one.
        longest: a server that asks for more seconds is not waited for.
    """
    if not error.retryable:
        return None
    if error.retry_after:
        return error.retry_after if error.retry_after <= longest else None
    return delay * 2 ** (attempt - 1) * random.uniform(0.5, 1.0)


def _failure(peer: Peer, body: Any, http: int | None, status: int | None, wait: float | None) -> ModelError:
    error = _error_of(body)
    code, type_ = str(error.get("code") or ""), str(error.get("type") or "")
    words = _message_of(body, error)
    kind = _kind(status, code, type_, f"{code} {type_} {words}", "failed_generation" in error)
    said = _clean(words, peer) or "no reason given"
    where = f"{peer.host}, HTTP {http}" if http else peer.host
    match kind:
        case "auth":
            key = f"set {peer.key_variable} to a valid key" if peer.key_variable else "check its API key"
            text = f"The model's server refused access ({where}): {key}. It said: {said}"
        case "payment":
            text = f"The model's server wants payment ({where}): {said}"
        case "not_found":
            text = f"The model's server does not know this model or path ({where}): {said}"
        case "context_length":
            text = f"The conversation is too long for the model ({where}): {said}"
        case "bad_tool_call":
            text = f"The model wrote a tool call that its own server rejected ({where}): {said}"
        case "content_filter":
            text = f"The provider's content filter refused the request ({where}): {said}"
        case _:
            text = f"The model's server failed or refused the request ({where}): {said}"
    return ModelError(text, kind=kind, status=http or status, retry_after=wait)


def _kind(status: int | None, code: str, type_: str, words: str, failed_generation: bool) -> ModelErrorKind:
    if failed_generation or _BAD_TOOL_CALL.search(words):
        return "bad_tool_call"
    if status in (None, 400, 402, 403, 429) and _NO_MONEY.search(f"{code} {type_}" if status == 429 else words):
        return "payment"
    if status in (None, 400, 413, 422, 500) and _CONTEXT_LENGTH.search(words):
        return "context_length"
    if status == 429 and _NEVER_FITS.search(words):
        return "context_length"  # larger than what a minute allows: no wait helps
    if status in (None, 400, 403, 422, 451) and _FILTERED.search(words):
        return "content_filter"
    if status == 400 and _BAD_KEY.search(words):
        return "auth"
    if status == 400 and _NO_MODEL.search(words):
        return "not_found"
    named = _KIND_OF_TYPE.get(code) or _KIND_OF_TYPE.get(type_)
    if status is None:
        return named or "overloaded"
    if status in _KIND_OF_STATUS:
        return _KIND_OF_STATUS[status]
    return "overloaded" if status >= 500 else "invalid_request"


def _body(body: bytes) -> Any:
    try:
        return loads(body)
    except ValueError:
        text = body[: 4 * _LONGEST_MESSAGE].decode("utf-8", "replace").strip()
        return {"message": "an HTML page" if text.startswith("<") else text}


def _error_of(body: Any) -> dict[str, Any]:
    """The error object, wherever it is (Gemini wraps its in a list)."""
    outer = record(next(iter(array(body)), body))
    return record(outer.get("error")) or outer


def _message_of(body: Any, error: dict[str, Any]) -> str:
    raw = record(error.get("metadata")).get("raw")  # OpenRouter: the words of the server behind it
    plain = record(body).get("error")
    passed_on = record(error.get("base_resp")).get("status_msg")  # MiniMax
    for words in (error.get("message"), plain, *map(error.get, _WORDS), passed_on):
        if isinstance(words, str) and words:
            return f"{words} ({raw})" if isinstance(raw, str) and raw else words
        if array(words):
            return "; ".join(_detail(item) for item in array(words)[:3])
    return ""


def _detail(item: Any) -> str:
    """One entry of FastAPI's list of validation errors, or of any other list."""
    described = record(item)
    words = described.get("msg") or described.get("message") or (item if isinstance(item, str) else "")
    path = ".".join(map(str, array(described.get("loc"))))
    return f"{path}: {words}" if path else str(words)


def _clean(words: str, peer: Peer) -> str:
    """One short line without keys."""
    if len(peer.api_key) >= _SHORTEST_KEY:
        words = words.replace(peer.api_key, "[key]")
    words = " ".join(_KEY_LIKE.sub("[key]", words).split())
    return words if len(words) <= _LONGEST_MESSAGE else words[:_LONGEST_MESSAGE] + "…"


def _status(value: Any) -> int | None:
    """An HTTP status, as a number or as digits."""
    number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
    return number if isinstance(number, int) and 400 <= number < 600 else None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if number >= 0 and math.isfinite(number) else None

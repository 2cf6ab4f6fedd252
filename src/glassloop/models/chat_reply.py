"""Replies of OpenAI's Chat Completions, whole or streamed, as ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glassloop.core.messages import Opaque, Part, Reply, Text, Thinking
from glassloop.core.usage import Usage
from glassloop.models.chat_calls import CallAssembler
from glassloop.models.decoding import decoded, mended
from glassloop.models.failures import Peer, error_failure, no_reply, not_a_reply
from glassloop.models.model import FINAL_ANSWER, ModelPart, TextPart, ThinkingPart
from glassloop.models.shapes import array, count, record
from glassloop.models.sse import SSEEvent
from glassloop.models.stops import graver, is_end, stop_reason
from glassloop.models.think_tags import ThinkTags, split_at_lone_close

REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Where servers put readable thinking (DeepSeek, Qwen, GLM, Moonshot; OpenRouter, Groq, Ollama, newer vLLM)."""

REASONING_DETAILS = "reasoning_details"
"""OpenRouter's blocks of thinking, signed or encrypted ones among them."""

_DROPPED = frozenset({"role", "index"})
_NOTHING: tuple[ModelPart, ...] = ()


class ChatReplyReader:
    """Folds the chunks of one reply, or takes it whole.

    Args:
        peer: who answers, for error messages.
        provider: the identity under which the reply is kept.
        names: wire names of the tools on offer, with ours.
        answering: whether one of them is that of the answer, whose arguments are shown as text as they come.
    """

    def __init__(self, peer: Peer, provider: str, names: Mapping[str, str], *, answering: bool = False) -> None:
        self.done = False
        self._answering = answering
        self._peer = peer
        self._provider = provider
        self._names = names
        self._calls = CallAssembler(names)
        self._elsewhere: CallAssembler | None = None
        self._tags = ThinkTags()
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._thinking_field: str | None = None
        self._details: list[dict[str, Any]] = []
        self._refusal: list[str] = []
        self._opaque: list[Opaque] = []
        self._extra: dict[str, Any] = {}
        self._usage: dict[str, Any] | None = None
        self._finish = ""
        self._finish_elsewhere = ""
        self._answered = False
        self._said_instead: Mapping[str, Any] = {}
        self._model = ""

    @property
    def complete(self) -> bool:
        """Whether the reply has ended by the protocol: a finish reason, or `[DONE]`."""
        return self.done or self._finish != ""

    @property
    def begun(self) -> bool:
        """Whether anything of the reply has come."""
        return bool(self._text or self._thinking or self._calls)

    @property
    def text(self) -> str:
        """Visible text so far."""
        return mended("".join(self._text))

    def feed(self, event: SSEEvent) -> Sequence[ModelPart]:
        """Take one event of a stream and return what it shows.

        Raises:
            ModelError: the event reports an error, or is not JSON.
        """
        data = event.data.lstrip()
        if not data.startswith(b"{"):
            if event.name == b"error":
                raise error_failure(self._peer, data.decode("utf-8", "replace"))
            self.done = self.done or data.strip() == b"[DONE]"
            return self._rest() if self.done else _NOTHING
        try:
            chunk = decoded(data)
        except ValueError:
            if self.complete:
                return _NOTHING
            raise not_a_reply(self._peer, "an event that is not JSON") from None
        if chunk.get("error") or event.name == b"error" or chunk.get("object") == "error":
            raise error_failure(self._peer, chunk.get("error") or chunk)
        self._take_head(chunk)
        choice = self._choice(chunk, whole=False)
        if choice is None:
            return _NOTHING
        if choice.get("delta") or "message" not in choice:
            shown = self._take(record(choice.get("delta")), whole=False)
        else:  # a whole message in a stream: news, or a summary of what was streamed
            shown = _NOTHING if self.begun else self._take(record(choice.get("message")), whole=True)
        if not is_end(finish := choice.get("finish_reason")):
            return shown
        self._finish = graver(self._finish, str(finish))
        return [*shown, *self._rest()]

    def whole(self, body: Any) -> Sequence[ModelPart]:
        """Take a whole answer, as it comes when it is not streamed, and return what it shows.

        Raises:
            ModelError: the body holds an error, or no choices.
        """
        answer = record(body)
        if answer.get("error"):
            raise error_failure(self._peer, answer["error"])
        choice = self._choice(answer, whole=True)
        if choice is None:
            raise no_reply(self._peer, body, "no choices")
        self._take_head(answer)
        finish = choice.get("finish_reason")
        self._finish = str(finish) if is_end(finish) else ""
        self.done = True
        return [*self._take(record(choice.get("message") or choice.get("delta")), whole=True), *self._rest()]

    def reply(self) -> Reply:
        """The reply, once it is complete.

        Raises:
            ModelError: there was none, or the finish reason says that the server failed.
        """
        if not self._answered:
            raise no_reply(self._peer, self._said_instead, "no choices")
        calls, finish = self._calls.calls(self._names), self._finish
        if not calls and self._elsewhere is not None:
            calls, finish = self._elsewhere.calls(self._names), self._finish_elsewhere or finish
        ended = stop_reason(finish, self._peer, called=bool(calls), offered=bool(self._names))
        parts: list[Part] = []
        thought, text = split_at_lone_close(self.text)
        if thinking := (mended("".join(self._thinking)) or _details_text(self._details)) + thought:
            parts.append(Thinking(thinking))
        if text:
            parts.append(Text(text))
        parts += self._opaque
        parts += calls
        refusal = "".join(self._refusal) or None
        return Reply(
            parts=tuple(parts),
            stop="refusal" if refusal else ended,
            usage=chat_usage(self._usage),
            model=self._model,
            provider=self._provider,
            refusal=refusal,
            extra=self._extras(),
        )

    def _take_head(self, chunk: Mapping[str, Any]) -> None:
        usage = chunk.get("usage")
        if not usage and "x_groq" in chunk:
            usage = record(chunk["x_groq"]).get("usage")
        if usage and (self._usage is None or chat_usage(record(usage)).total):  # zeros at the end tell nothing
            self._usage = record(usage)
        if not self._model:
            self._model = str(chunk.get("model") or "")

    def _choice(self, answer: Mapping[str, Any], *, whole: bool) -> dict[str, Any] | None:
        """The choice with index 0. A request never asks for others: calls that stand in those belong to this one.

        Raises:
            ModelError: the choice reports an error.
        """
        choices = [record(choice) for choice in array(answer.get("choices")) if isinstance(choice, dict)]
        if len(choices) != 1 or choices[0].get("index"):  # one with index 0 is the rule
            choices = self._sorted_out(choices, whole=whole)
        if not choices:
            if not answer.get("usage"):
                self._said_instead = answer
            return None
        choice = choices[0]
        if error := choice.get("error"):
            raise error_failure(self._peer, error)
        self._answered = True
        return choice

    def _sorted_out(self, choices: list[dict[str, Any]], *, whole: bool) -> list[dict[str, Any]]:
        """The first choice with index 0 alone, what is in the others taken aside.

        GitHub Copilot (for Claude) and LiteLLM's bridge to Responses split a reply's calls off from its text this way.
        """
        first = next((choice for choice in choices if not choice.get("index")), None)
        for choice in choices:
            if choice is first:
                continue
            for entry in array(record(choice.get("message") or choice.get("delta")).get("tool_calls")):
                self._elsewhere = self._elsewhere or CallAssembler(self._names)
                self._elsewhere.add(entry, whole=whole)
            if is_end(finish := choice.get("finish_reason")):
                self._finish_elsewhere = graver(self._finish_elsewhere, str(finish))
        return [] if first is None else [first]

    def _take(self, delta: dict[str, Any], *, whole: bool) -> Sequence[ModelPart]:
        shown: list[ModelPart] = []
        for key, value in delta.items():
            if value is None or value == "" or key in _DROPPED:
                continue
            if key == "content":
                self._take_content(value, shown)
            elif key == "tool_calls":
                for entry in array(value) if isinstance(value, list) else [value]:
                    self._calls.add(entry, whole=whole)
                if self._answering:
                    self._show_answer(shown)
            elif key in REASONING_FIELDS and isinstance(value, str):
                self._think(value, key, shown)
            elif key == REASONING_DETAILS:
                _merge_details(self._details, array(value))
            elif key == "refusal":
                self._refusal.append(str(value))
            elif key == "function_call":
                if not delta.get("tool_calls"):  # else it is one of those, in the old form
                    self._calls.add({"index": 0, "function": value})
            elif value != []:
                self._extra[key] = value
        return shown

    def _take_content(self, content: Any, shown: list[ModelPart]) -> None:
        """Text; or, at Mistral and behind proxies, blocks, thinking among them."""
        if isinstance(content, str):
            self._say(content, shown)
            return
        for block in array(content) or [content]:
            if isinstance(block, str):
                self._say(block, shown)
                continue
            fields = record(block)
            if isinstance(text := fields.get("text"), str):
                self._take_content(text, shown)
            elif isinstance(thought := fields.get("thinking"), str | list):
                self._think(_joined_text(thought), None, shown)
            elif fields:
                self._opaque.append(Opaque(fields))

    def _say(self, text: str, shown: list[ModelPart]) -> None:
        if not self._tags.over:
            thought, text = self._tags.feed(text)
            if thought:
                self._think(thought, None, shown)
        if text:
            self._text.append(text)
            shown.append(TextPart(text))

    def _show_answer(self, shown: list[ModelPart]) -> None:
        """Show what has come of the first call of the answer tool."""
        if news := self._calls.news_of(FINAL_ANSWER):
            shown.append(TextPart(news))

    def _rest(self) -> Sequence[ModelPart]:
        """What was held back because a tag might have begun there."""
        thought, text = self._tags.close()
        shown: list[ModelPart] = []
        if thought:
            self._think(thought, None, shown)
        if text:
            self._text.append(text)
            shown.append(TextPart(text))
        return shown

    def _think(self, text: str, field: str | None, shown: list[ModelPart]) -> None:
        """Thinking counts once, where a server sends the same under two names."""
        if self._thinking and field != self._thinking_field:
            return
        self._thinking_field = field
        self._thinking.append(text)
        shown.append(ThinkingPart(text))

    def _extras(self) -> dict[str, Any]:
        """What goes into `Reply.extra`: thinking is not stored twice, so its field is there with None."""
        extra = self._extra
        if self._thinking_field:
            extra = {**extra, self._thinking_field: None}
        return {**extra, REASONING_DETAILS: self._details} if self._details else extra


def chat_usage(usage: Mapping[str, Any] | None) -> Usage:
    """Usage as Chat Completions reports it: cached tokens are part of the prompt, reasoning is part of the completion.

    Where the total is more than both (xAI and Gemini leave reasoning out of the completion), the rest is output.
    """
    if not usage:
        return Usage(requests=1, unreported=1)
    read = count(usage.get("prompt_tokens")) or count(usage.get("input_tokens"))
    written = count(usage.get("completion_tokens")) or count(usage.get("output_tokens"))
    written = max(written, count(usage.get("total_tokens")) - read) if read else written
    prompt, completion = record(usage.get("prompt_tokens_details")), record(usage.get("completion_tokens_details"))
    cached = count(prompt.get("cached_tokens")) or count(usage.get("prompt_cache_hit_tokens"))
    return Usage(
        input=read,
        output=written,
        cached=min(cached, read),
        cache_write=min(count(prompt.get("cache_write_tokens")), read),
        reasoning=min(count(completion.get("reasoning_tokens")), written),
        requests=1,
    )


def _merge_details(known: list[dict[str, Any]], news: list[Any]) -> None:
    """Append OpenRouter's blocks; in a stream, pieces of one block share type and index."""
    for piece in news:
        block = dict(record(piece))
        last = known[-1] if known else {}
        if "index" not in block or (block["index"], block.get("type")) != (last.get("index"), last.get("type")):
            known.append(block)
            continue
        for key, value in block.items():
            if key in ("text", "summary", "data") and isinstance(value, str):
                last[key] = (last.get(key) or "") + value
            elif value is not None:
                last[key] = value


def _details_text(details: list[dict[str, Any]]) -> str:
    return "".join(str(block.get("text") or block.get("summary") or "") for block in details)


def _joined_text(thought: Any) -> str:
    if isinstance(thought, str):
        return thought
    return "".join(str(block.get("text") or "") for block in map(record, array(thought)))

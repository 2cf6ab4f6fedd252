"""Requests in the format of OpenAI's Chat Completions.

Each message is encoded once and joined as bytes from then on: the encoding is kept on the message object, under a slot
of its own for each kind of server, so that a long conversation costs next to nothing per request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, cast

from glassloop.core.blank import is_blank
from glassloop.core.encoding import dumps
from glassloop.core.errors import ConfigurationError
from glassloop.core.messages import Media, Message, Reply, SystemMessage, ToolCall, ToolResult, UserMessage
from glassloop.core.names import wire_name
from glassloop.models.answers import OPENAI, answer_tool, answer_words, fitted
from glassloop.models.chat_reply import REASONING_DETAILS, REASONING_FIELDS
from glassloop.models.media import IMAGE_TYPES, PDF, Gallery, data_url
from glassloop.models.model import ModelRequest, ModelSettings, OutputSpec, ToolSpec
from glassloop.models.profiles import Profile
from glassloop.models.replay import arguments_text, wire_ids
from glassloop.models.sendable import sendable
from glassloop.models.tool_schemas import for_chat, plain_schema
from glassloop.models.toolbox import Toolbox
from glassloop.models.views import BEGINNING, EMPTY, GO_ON, NO_OUTPUT, alternating, media_after_results

_NOTHING_SAID = dumps({"role": "user", "content": BEGINNING})
_GO_ON = dumps({"role": "user", "content": GO_ON})
_ASSISTANT = b'{"role":"assistant"'
_SIGNED_CALL_FIELD = "extra_content"
"""Where Gemini's compatible endpoint keeps thought signatures of tool calls."""


class ChatRenderer:
    """Renders requests for one kind of server.

    Args:
        model: the model's name at the server.
        provider: the identity under which replies of this server are kept.
        profile: the server's quirks.
    """

    def __init__(self, model: str, provider: str, profile: Profile) -> None:
        self._model = model
        self._provider = provider
        self._profile = profile
        self._slot = _slot(provider, profile)
        self._toolbox = Toolbox(partial(_tool, profile=profile))
        self._known_settings: tuple[tuple[ModelSettings, OutputSpec | None, bool, bool], bytes] | None = None

    def names(self, request: ModelRequest) -> Mapping[str, str]:
        """Wire names of the tools on offer, with ours."""
        return self._toolbox.pack(self._offered(request)).names

    def body(self, request: ModelRequest) -> bytes:
        """The request's body; always a history that the server accepts."""
        instructions, messages = self._instructions(request), sendable(request.messages)
        if self._profile.strict_alternation:
            messages, instructions = alternating(media_after_results(messages), instructions)
        fragments = self._messages(messages) or [_NOTHING_SAID]
        if fragments[-1].startswith(_ASSISTANT):
            fragments.append(_GO_ON)
        if instructions:
            fragments.insert(0, _system(self._profile.system_role, instructions))
        tools = self._toolbox.pack(self._offered(request), request.settings.extra.get("tools"))
        settings = self._encoded_settings(request, bool(tools.encoded))
        head = [settings, b',"tools":[', tools.encoded, b"]"] if tools.encoded else [settings]
        return b"".join([*head, b',"messages":[', b",".join(fragments), b"]}"])

    def _instructions(self, request: ModelRequest) -> str:
        output = request.output
        if output is None or output.told or self._profile.strict_schema or not self._constrains(request):
            return request.instructions
        return f"{request.instructions}\n\n{answer_words(output)}".strip()

    def _offered(self, request: ModelRequest) -> Sequence[ToolSpec]:
        """The tools on offer, that of the answer among them where the server cannot constrain its reply."""
        if request.output is None or self._constrains(request):
            return request.tools
        return (*request.tools, answer_tool(request.output))

    def _constrains(self, request: ModelRequest) -> bool:
        """Whether the server is asked to constrain its reply to the schema of the answer."""
        if request.output is None or request.output.mode != "auto":
            return request.output is not None and request.output.mode == "native"
        has_tools = bool(request.tools or request.settings.extra.get("tools"))
        return self._profile.json_schema == "always" or (self._profile.json_schema == "without_tools" and not has_tools)

    def _format(self, output: OutputSpec) -> dict[str, Any]:
        strict = fitted(output.schema, OPENAI) if self._profile.strict_schema else None
        wanted: dict[str, Any] = {"name": "answer", "schema": for_chat(output.schema) if strict is None else strict}
        if output.description:
            wanted["description"] = output.description
        if self._profile.strict_schema:
            wanted["strict"] = strict is not None
        return {"type": "json_schema", "json_schema": wanted}

    def _encoded_settings(self, request: ModelRequest, with_tools: bool) -> bytes:
        """All but tools and messages, without the last bracket; the same as last time, as a rule."""
        asked = request.settings, request.output, request.stream, with_tools
        known = self._known_settings
        if known is None or known[0] != asked:
            known = self._known_settings = asked, dumps(self._settings(request, with_tools))[:-1]
        return known[1]

    def _settings(self, request: ModelRequest, with_tools: bool) -> dict[str, Any]:
        asked, profile = request.settings, self._profile
        fields: dict[str, Any] = {"model": self._model}
        if request.stream:
            fields["stream"] = True
            if profile.usage_in_stream:
                fields["stream_options"] = {"include_usage": True}
        optional = {
            profile.max_tokens_field: asked.max_tokens,
            "temperature": asked.temperature,
            "top_p": asked.top_p,
            "stop": asked.stop or None,
            "seed": asked.seed,
            profile.effort_field: _effort(asked) if profile.effort_field else None,
        }
        fields |= {key: value for key, value in optional.items() if key and value is not None}
        if with_tools and asked.parallel_tool_calls is not None:
            fields["parallel_tool_calls"] = asked.parallel_tool_calls
        if with_tools and asked.tool_choice is not None:
            fields["tool_choice"] = _choice(asked.tool_choice)
        if request.output is not None and self._constrains(request):
            fields["response_format"] = self._format(request.output)
        if "messages" in asked.extra:
            raise ConfigurationError("ModelSettings(extra=...) must not hold 'messages'; pass history= to the run.")
        return {**fields, **{key: value for key, value in asked.extra.items() if key != "tools"}}

    def _messages(self, messages: Sequence[Message]) -> list[bytes]:
        slot, taken = self._slot, set[str]()
        fragments: list[bytes] = []
        ids: tuple[str, ...] = ()
        settled = 0
        gallery: Gallery | None = None
        for message in messages:  # runs for every message of every request: 0.25 us each where all are encoded
            known = message.__dict__.get(slot)
            if type(message) is ToolResult:
                wire_id = ids[settled]
                settled += 1
                if known is None or known[0] != wire_id:
                    if message.media:
                        return self._messages(media_after_results(messages))
                    known = message.__dict__[slot] = (wire_id, _tool_message(message, wire_id))
                fragments.append(known[1])
            elif type(message) is Reply:
                if known is None:
                    known = message.__dict__[slot] = self._reply(message, ())
                fragment, ids = known
                settled = 0
                if ids:
                    if not taken.isdisjoint(ids):
                        fragment, ids = self._reply(message, taken)
                    taken.update(ids)
                if fragment:
                    fragments.append(fragment)
            elif known is not None:
                fragments.append(known)
            elif isinstance(message, SystemMessage):
                if not is_blank(message.text):
                    fragments.append(_system(self._profile.system_role, message.text))
            elif isinstance(message, UserMessage):
                if isinstance(message.content, str):
                    said = EMPTY if is_blank(message.content) else message.content
                    known = message.__dict__[slot] = dumps({"role": "user", "content": said})
                    fragments.append(known)
                else:
                    gallery = gallery or Gallery(messages, self._accepts, self._profile.image_bytes)
                    fragments.append(_user_parts(message, gallery))
        return fragments

    def _reply(self, reply: Reply, taken: set[str] | tuple[()]) -> tuple[bytes, tuple[str, ...]]:
        """The message and the ids of its calls; empty where the reply says nothing that this server can read."""
        calls = reply.calls
        own = reply.provider == self._provider
        ids = wire_ids(calls, taken, short=self._profile.short_call_ids, own=own)
        text = reply.refusal if is_blank(reply.text) else reply.text
        if not calls and not text:
            return b"", ids
        message: dict[str, Any] = {"role": "assistant", "content": text or self._profile.empty_content}
        if calls:
            message["tool_calls"] = [_call(call, wire_id, own) for call, wire_id in zip(calls, ids, strict=True)]
            if self._profile.missing_signature is not None:
                message["tool_calls"][0].setdefault(_SIGNED_CALL_FIELD, _signed(self._profile.missing_signature))
        if calls or self._profile.reasoning_of_answers:
            message |= self._reasoning(reply, own)
        return dumps(message), ids

    def _reasoning(self, reply: Reply, own: bool) -> dict[str, Any]:
        """Thinking, for the server it came from and under the name it came with."""
        fields: dict[str, Any] = {}
        if own and self._profile.echo_reasoning:
            for key in (*REASONING_FIELDS, REASONING_DETAILS):
                if key in reply.extra:
                    value = reply.extra[key]
                    fields[key] = reply.thinking if value is None else value
        if not fields and self._profile.missing_reasoning is not None:
            fields[REASONING_FIELDS[0]] = self._profile.missing_reasoning
        return fields

    def _accepts(self, media_type: str) -> bool:
        if media_type == PDF:
            return self._profile.files
        return self._profile.images and media_type in IMAGE_TYPES


_SLOTS: dict[tuple[str, Profile], str] = {}


def _slot(provider: str, profile: Profile) -> str:
    """The attribute under which a message keeps its encoding for this kind of server."""
    return _SLOTS.setdefault((provider, profile), f"_chat_{len(_SLOTS)}")


@lru_cache(maxsize=256)
def _system(role: str, text: str) -> bytes:
    return dumps({"role": role, "content": text})


def _tool(spec: ToolSpec, profile: Profile) -> bytes:
    function: dict[str, Any] = {"name": wire_name(spec.name)}
    parameters = for_chat(plain_schema(spec.parameters))
    if profile.moonshot_schemas:
        from glassloop.models.moonshot_schemas import for_moonshot

        parameters = for_moonshot(parameters)
    description, longest = spec.description, profile.longest_description
    if longest is not None and len(description) > longest:
        end = max(description.rfind(" ", 0, longest), longest // 2)
        rest = description[end:].strip()
        parameters["description"] = f"{rest}\n\n{parameters.get('description', '')}".strip()
        description = description[:end]
    if description:
        function["description"] = description
    function["parameters"] = parameters
    return dumps({"type": "function", "function": function})


def _tool_message(result: ToolResult, wire_id: str) -> bytes:
    content = NO_OUTPUT if is_blank(result.content) else result.content
    return dumps({"role": "tool", "tool_call_id": wire_id, "content": content})


def _call(call: ToolCall, wire_id: str, own: bool) -> dict[str, Any]:
    function = {"name": wire_name(call.name), "arguments": arguments_text(call.arguments)}
    entry: dict[str, Any] = {"id": wire_id, "type": "function", "function": function}
    if own and _SIGNED_CALL_FIELD in call.extra:
        entry[_SIGNED_CALL_FIELD] = call.extra[_SIGNED_CALL_FIELD]
    return entry


def _signed(signature: str) -> dict[str, Any]:
    return {"google": {"thought_signature": signature}}


def _user_parts(message: UserMessage, gallery: Gallery) -> bytes:
    """A user message of several parts; one string where no image or file is left in it (some servers want that)."""
    parts: list[bytes] = []
    texts: list[str] = []
    for part in cast("Sequence[Any]", message.content):
        text = gallery.take(part) if isinstance(part, Media) else part.text
        if text is None:
            parts.append(_media_part(part))
        elif text:
            texts.append(text)
            parts.append(dumps({"type": "text", "text": text}))
    if len(texts) == len(parts):
        said = "\n\n".join(texts)
        return dumps({"role": "user", "content": EMPTY if is_blank(said) else said})
    return b'{"role":"user","content":[' + b",".join(parts) + b"]}"


def _media_part(media: Media) -> bytes:
    if media.media_type == PDF:
        name = dumps(media.name or "file.pdf")
        return b'{"type":"file","file":{"filename":' + name + b',"file_data":"' + data_url(media) + b'"}}'
    return b'{"type":"image_url","image_url":{"url":"' + data_url(media) + b'"}}'


def _effort(settings: ModelSettings) -> str | None:
    """The effort that a number of thinking tokens amounts to, where the server counts in efforts."""
    match settings.thinking:
        case None | str():
            return settings.thinking
        case tokens:
            return "low" if tokens <= 2_048 else "medium" if tokens <= 8_192 else "high"


def _choice(choice: str) -> str | dict[str, Any]:
    if choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": wire_name(choice)}}

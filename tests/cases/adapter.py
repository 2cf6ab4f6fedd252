"""Plays a case through Glassloop's public API: what a user of the library would write, and no case known by name.

The contract is the judge's: `run(case, base_url, tools)` maps the case to an agent and its result back to plain values.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

from child import NotApplicable

import glassloop
from glassloop import Agent, LimitReached, Limits, ModelError, ModelSettings, RunContext, Tool, tool
from glassloop.core.errors import GlassloopError
from glassloop.core.events import RunFinished, TextDelta, ToolFinished, ToolStarted
from glassloop.core.messages import Message
from glassloop.core.result import Decision, RunResult
from glassloop.core.usage import Usage
from glassloop.memory import ContextStrategy, LastMessages, Summary, TokenWindow
from glassloop.models.anthropic import Anthropic
from glassloop.models.model import Model
from glassloop.models.openai_chat import OpenAIChat, from_openai
from glassloop.stream import RunStream

ToolError = glassloop.ToolError
CONTEXT_TYPE = RunContext
ANTHROPIC = True
tool_decorator = tool
ask_human = glassloop.ask_human

OUTCOMES = {
    "limited": "incomplete",
    "truncated": "incomplete",
    "unanswered": "incomplete",
    "filtered": "refused",
    "waiting": "paused",
}
NOT_BUILT = ("inject_user_text_before_next_request",)
SETTINGS = {item.name for item in fields(ModelSettings)}


@dataclass
class Play:
    """What one turn of a case came to."""

    result: RunResult | None = None
    error: BaseException | None = None
    events: list[list[str]] = field(default_factory=list[list[str]])
    broke_at: float | None = None


def run(case: dict[str, Any], base_url: str, tools: list[Any]) -> dict[str, Any]:
    """Play the case; see the judge for what goes in and out."""
    return asyncio.run(arun(case, base_url, tools))


async def arun(case: dict[str, Any], base_url: str, tools: list[Any]) -> dict[str, Any]:
    """`run`, on the caller's event loop."""
    asked = case["input"]
    _refuse_what_is_not_built(asked, tools)
    history = from_openai([*_list(asked.get("history")), *_list(asked.get("start_history_ends_with"))])
    agents = [
        Agent(
            _model(asked, base_url, case["x"]["root"]),
            [_tool(given) for given in tools],
            settings=_settings(asked),
            limits=_limits(asked),
            memory=memory,
        )
        for memory in _memories(asked)
    ]
    plays = [await _turn(agent, asked, asked.get("prompt"), history) for agent in agents]
    if asked.get("follow_up"):
        plays.append(await _turn(agents[-1], asked, asked["follow_up"], _messages(plays[-1])))
    told = {**_told(plays), "sub_runs": len(agents)}
    if told["outcome"] != "completed" and _messages(plays[-1]):
        probe = _model(asked, case["x"]["probe_url"], case["x"]["probe_root"])
        await agents[-1].run("Are you still there?", history=_messages(plays[-1]), model=probe)
    return told


def _refuse_what_is_not_built(asked: dict[str, Any], tools: list[Any]) -> None:
    for feature in NOT_BUILT:
        if asked.get(feature) is not None:
            raise NotApplicable(f"no {feature} yet")
    if any(given.fn is None for given in tools):
        raise NotApplicable("no handoffs yet")


def _list(given: Any) -> list[Any]:
    return cast("list[Any]", given) if isinstance(given, list) else [given] if given else []


def _model(asked: dict[str, Any], url: str, root: str) -> Model:
    if "anthropic" in (asked["mode"], asked.get("wire")):
        return Anthropic("scripted", base_url=root, api_key="sk-fake")
    return OpenAIChat("scripted", base_url=url, api_key="sk-fake", profile=asked.get("profile"))


def _tool(given: Any) -> Tool:
    if isinstance(given.fn, Tool):
        return replace(given.fn, timeout=given.timeout or given.fn.timeout)
    function: Callable[..., Any] = given.fn
    return tool(function, name=given.name, approval=given.approval, timeout=given.timeout)


def _settings(asked: dict[str, Any]) -> ModelSettings:
    given = dict(asked.get("settings") or {})
    known = {name: given.pop(name) for name in list(given) if name in SETTINGS}
    return ModelSettings(**known, thinking=1024 if asked.get("thinking") else None, extra=given)


def _limits(asked: dict[str, Any]) -> Limits:
    given: dict[str, Any] = asked.get("limits") or {}
    if asked.get("window_messages"):  # a loop longer than its window, of calls that may well be alike
        return Limits(repetition=None)
    return Limits(steps=given["max_steps"]) if "max_steps" in given else Limits()


def _memories(asked: dict[str, Any]) -> list[list[ContextStrategy]]:
    """What the agent of each run sees of the conversation: one run, or one for each summary that the case wants."""
    if found := re.search(r"summarise with keep-last = (\d+)\.\.(\d+)", asked.get("then", "")):
        return [[Summary(keep, keep, unit="messages")] for keep in range(int(found[1]), int(found[2]) + 1)]
    if most := asked.get("window_messages"):
        return [[LastMessages(most)]]
    if tokens := asked.get("limit_tokens"):
        return [[TokenWindow(tokens)]]
    return [[]]


async def _turn(agent: Agent, asked: dict[str, Any], prompt: str | None, history: Sequence[Message]) -> Play:
    play = Play()
    try:
        if asked.get("stream") or asked.get("client"):
            await _watch(play, agent.stream(prompt, history=history), asked.get("client") or "")
        else:
            play.result = await agent.run(prompt, history=history)
        if play.result is not None and play.result.outcome == "waiting":
            play.result = await _decide(agent, play.result, asked.get("decisions") or {})
    except (GlassloopError, asyncio.CancelledError) as error:
        play.error = error
        play.result = getattr(error, "result", None)
    return play


async def _watch(play: Play, stream: RunStream, client: str) -> None:
    """Read the stream to its end, or as far as the client of the case does."""
    wanted = re.search(r"read (\d+)", client)
    texts = 0
    async with stream:
        async for event in stream:
            match event.data:
                case ToolStarted(call_id=call_id):
                    play.events.append(["started", call_id])
                case ToolFinished(call_id=call_id):
                    play.events.append(["finished", call_id])
                case RunFinished():
                    play.events.append(["terminal"])
                case TextDelta():
                    texts += 1
                case _:
                    pass
            if wanted and texts == int(wanted[1]):
                play.broke_at = time.monotonic()
                return
    play.result = stream.result


async def _decide(agent: Agent, result: RunResult, decisions: dict[str, Any]) -> RunResult:
    """Answer the held calls that the case decides on; the others stay held."""
    while result.outcome == "waiting":
        decided = [held for held in result.pending if held.provider_id in decisions]
        if not decided:
            break
        answers = {held.approval_id: _decision(decisions[held.provider_id]) for held in decided}
        result = await agent.resume(result.run_id, decisions=answers)
    return result


def _decision(given: str | list[Any]) -> Decision:
    match given:
        case "reject" | ["reject"]:
            return Decision("deny")
        case ["reject", reason]:
            return Decision("deny", reason=reason)
        case ["edit", arguments]:
            return Decision("edit", arguments=arguments)
        case _:
            return Decision("approve")


def _messages(play: Play) -> Sequence[Message]:
    return play.result.messages if play.result else ()


def _told(plays: list[Play]) -> dict[str, Any]:
    last = plays[-1]
    results = [play.result for play in plays if play.result is not None]
    result, error, outcome = last.result, last.error, _outcome(last)
    replies = [reply for one in results for reply in one.replies]
    partial = error.partial if isinstance(error, ModelError) else ""
    return {
        "outcome": outcome,
        "final_text": result.output if result and outcome == "completed" else None,
        "partial_text": partial or (result.output if result and outcome != "completed" else None),
        "error": str(error) if error else result.message if result else None,
        "refusal": result.refusal if result else None,
        "usage": _usage(sum((one.usage for one in results), Usage())),
        "usage_per_request": [_usage(reply.usage) for reply in replies],
        "events": [event for play in plays for event in play.events],
        "flags": [nudge for one in results for nudge in one.nudges],
        "break_t": last.broke_at,
        "tool_value_len": max((len(str(done.value)) for one in results for done in one.tool_executions), default=None),
    }


def _outcome(play: Play) -> str:
    match play:
        case Play(error=asyncio.CancelledError()) | Play(result=None, error=None):
            return "cancelled"
        case Play(error=ModelError(kind="context_length")):
            return "context_length"
        case Play(error=LimitReached()):
            return "incomplete"
        case Play(error=None, result=RunResult(outcome=outcome)):
            return OUTCOMES.get(outcome, outcome)
        case _:
            return "error"


def _usage(usage: Usage) -> dict[str, int] | None:
    if not usage.known:
        return None
    return {name: getattr(usage, name) for name in ("input", "output", "cached", "reasoning", "requests")}

"""Starting, listing, showing and cancelling runs; everything is the user's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from glassloop import Agent, Limits, ModelError
from glassloop.core.messages import UserMessage
from glassloop.models.model import ModelRequest
from glassloop.testing import ModelServer, ScriptedModel, call, say


def lookup(city: str) -> str:
    """Look a city up."""
    return f"{city}: 21"


def text_of(request: ModelRequest) -> str:
    """The last thing that the user said."""
    last = request.messages[-1]
    assert isinstance(last, UserMessage)
    return last.text


async def test_a_run_is_started_and_can_be_looked_at(site: Any) -> None:
    started = await site.alice.post("/v1/runs", {"input": "你好", "session": "monday"})
    assert started.status == 202
    run_id = started.json["run_id"]
    assert started.headers["Location"] == started.json["links"]["self"] == f"/v1/runs/{run_id}"
    assert started.json["agent"] == "weather"
    run = await site.alice.rested(run_id)
    assert run["status"] == "completed"
    assert run["output"] == "It is 21 degrees in Oslo."
    assert run["session"] == "monday"
    assert run["input"] == "你好"
    assert run["steps"] == 1
    assert run["usage"]["total"] == run["tokens"] > 0
    assert run["tool_executions"] == run["pending_approvals"] == []


async def test_a_run_tells_what_its_tools_did(serve: Callable[..., Any]) -> None:
    site = await serve(Agent(ScriptedModel([call("lookup", city="Oslo"), "21"]), [lookup]))
    run = await site.alice.rested(await site.alice.run())
    done = run["tool_executions"][0]
    assert (done["tool"], done["arguments"], done["status"]) == ("lookup", {"city": "Oslo"}, "ok")
    assert done["content"] == "Oslo: 21"


async def test_runs_are_listed_newest_first_page_by_page(site: Any) -> None:
    ids = [await site.alice.run(f"question {number}") for number in range(5)]
    first = (await site.alice.get("/v1/runs?limit=2")).json
    assert [run["run_id"] for run in first["runs"]] == ids[:2:-1]
    second = (await site.alice.get(f"/v1/runs?limit=3&before={first['next']}")).json
    assert [run["run_id"] for run in second["runs"]] == ids[2::-1]
    assert second["next"] is None


async def test_lists_are_filtered(site: Any) -> None:
    one = await site.alice.run(session="a")
    two = await site.alice.run(session="b")
    await site.alice.rested(one)
    await site.alice.rested(two)

    async def ids(query: str) -> list[str]:
        return [run["run_id"] for run in (await site.alice.get(f"/v1/runs?{query}")).json["runs"]]

    assert await ids("session=a") == [one]
    assert await ids("status=completed&agent=weather") == [two, one]
    assert await ids("status=failed") == []
    assert await ids("agent=other") == []


async def test_what_belongs_to_another_user_is_not_found(site: Any) -> None:
    run_id = await site.alice.run(session="s1")
    await site.alice.rested(run_id)
    for stranger in (site.bob, site.sam):
        assert (await stranger.get("/v1/runs")).json["runs"] == []
        for method, path in (
            ("GET", f"/v1/runs/{run_id}"),
            ("GET", f"/v1/runs/{run_id}/events"),
            ("POST", f"/v1/runs/{run_id}/cancel"),
            ("GET", "/v1/sessions/s1"),
        ):
            answer = await stranger(method, path)
            assert answer.status == 404
            assert run_id not in answer.problem["detail"]
    unknown = await site.alice.get("/v1/runs/run_unknown")
    foreign = await site.bob.get(f"/v1/runs/{run_id}")
    assert {**unknown.problem, "request_id": ""} == {**foreign.problem, "request_id": ""}


async def test_two_users_with_a_session_of_one_name_do_not_share_it(serve: Callable[..., Any]) -> None:
    model = ScriptedModel(lambda request: f"{len(request.messages)} messages")
    site = await serve(Agent(model))
    for user, word in ((site.alice, "alice's secret"), (site.bob, "bob's secret"), (site.alice, "again")):
        run = await user.rested(await user.run(word, session="s1"))
        assert run["session"] == "s1"
    texts = [message["text"] for message in (await site.alice.get("/v1/sessions/s1")).json["messages"]]
    assert texts == ["alice's secret", "1 messages", "again", "3 messages"]
    assert "alice" not in (await site.bob.get("/v1/sessions/s1")).text


@pytest.mark.parametrize("name", ["周一", "a b", "100%", "a%2Fb", "demo", "x" * 128])
async def test_a_session_may_be_called_anything_printable(site: Any, name: str) -> None:
    from urllib.parse import quote

    await site.alice.rested(await site.alice.run(session=name))
    session = await site.alice.get(f"/v1/sessions/{quote(name, safe='')}")
    assert session.json["session"] == name
    assert (await site.alice.get("/v1/runs")).json["runs"][0]["session"] == name


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "input"),
        ({"input": ""}, "input"),
        ({"input": " \n"}, "input"),
        ({"input": 1}, "input"),
        ({"input": "\ud800"}, "input"),
        ({"input": "x", "agent": "other"}, "agent"),
        ({"input": "x", "session": "a/b"}, "session"),
        ({"input": "x", "session": ".."}, "session"),
        ({"input": "x", "session": "a\u0000b"}, "session"),
        ({"input": "x", "session": "x" * 129}, "session"),
        ({"input": "x", "stream": "yes"}, "stream"),
        ({"input": "x", "limits": {"steps": 0}}, "limits.steps"),
        ({"input": "x", "limits": {"steps": 21}}, "limits.steps"),
        ({"input": "x", "limits": {"cost_usd": 2}}, "limits.cost_usd"),
        ({"input": "x", "limits": {"cost_usd": float("nan")}}, "limits.cost_usd"),
        ({"input": "x", "user": "bob"}, "user"),
        ([], "body"),
        (None, "body"),
    ],
)
async def test_a_wrong_request_names_the_field(site: Any, body: Any, field: str) -> None:
    answer = await site.alice.post("/v1/runs", body)
    assert answer.status == 422
    assert [error["field"] for error in answer.problem["errors"]] == [field]
    assert (await site.alice.get("/v1/runs")).json["runs"] == []


async def test_of_several_agents_one_must_be_named(serve: Callable[..., Any]) -> None:
    site = await serve([Agent(ScriptedModel(lambda _: "a"), name="a"), Agent(ScriptedModel(lambda _: "b"), name="b")])
    refused = await site.alice.post("/v1/runs", {"input": "x"})
    assert refused.problem["detail"] == "agent: must be one of a, b"
    assert (await site.alice.rested(await site.alice.run(agent="b")))["output"] == "b"


async def test_a_run_may_have_tighter_limits(serve: Callable[..., Any]) -> None:
    model = ScriptedModel(lambda request: call("lookup", city=str(len(request.messages))))
    site = await serve(Agent(model, [lookup], limits=Limits(steps=5)))
    run = await site.alice.rested(await site.alice.run(limits={"steps": 2}))
    assert (run["status"], run["limit"], run["steps"]) == ("limited", "steps", 2)


async def test_a_run_is_cancelled_and_its_model_request_closed(serve: Callable[..., Any], model_at: Any) -> None:
    with ModelServer(lambda _: say("word ", endless=True)) as server:
        site = await serve(Agent(model_at(server)))
        run_id = await site.alice.run()
        assert await asyncio.to_thread(server.wait_for_requests, 1)
        cancelled = await site.alice.post(f"/v1/runs/{run_id}/cancel", {"reason": "enough"})
        assert cancelled.status == 202
        assert (await site.alice.rested(run_id))["status"] == "cancelled"
        assert await asyncio.to_thread(server.requests[0].wait)
        assert server.requests[0].disconnected_at is not None
        again = await site.alice.post(f"/v1/runs/{run_id}/cancel")
        assert (again.status, again.problem["code"]) == (409, "run_finished")


async def test_a_user_has_so_many_runs_at_once(serve: Callable[..., Any], model_at: Any) -> None:
    with ModelServer(lambda _: say("word ", endless=True)) as server:
        site = await serve(Agent(model_at(server)), max_runs=2)
        answers = await asyncio.gather(*(site.alice.post("/v1/runs", {"input": "x"}) for _ in range(6)))
        assert sorted(answer.status for answer in answers) == [202, 202, 429, 429, 429, 429]
        refused = next(answer for answer in answers if answer.status == 429)
        assert refused.problem["code"] == "too_many_runs"
        assert int(refused.headers["Retry-After"]) > 0
        assert (await site.bob.post("/v1/runs", {"input": "x"})).status == 202
        going = [answer.json["run_id"] for answer in answers if answer.status == 202]
        await site.alice.post(f"/v1/runs/{going[0]}/cancel")
        await site.alice.rested(going[0])
        assert (await site.alice.post("/v1/runs", {"input": "x"})).status == 202


async def test_a_failed_run_tells_no_internals(serve: Callable[..., Any]) -> None:
    def broken() -> str:
        """Break."""
        raise RuntimeError("secret in /etc/path")

    model = ScriptedModel([call("broken"), ModelError("The key was refused.", kind="auth")])
    site = await serve(Agent(model, [broken]))
    run_id = await site.alice.run()
    run = await site.alice.rested(run_id)
    assert (run["status"], run["message"]) == ("failed", "The key was refused.")
    events = await site.alice.get(f"/v1/runs/{run_id}/events")
    assert "secret" not in str(run) + events.text
    assert "Traceback" not in events.text


async def test_two_hundred_runs_at_once(serve: Callable[..., Any]) -> None:
    site = await serve(Agent(ScriptedModel(lambda request: f"re {text_of(request)}")))
    ids = await asyncio.gather(*(site.alice.run(f"q{number}") for number in range(200)))
    runs = await asyncio.gather(*(site.alice.rested(run_id) for run_id in ids))
    assert {run["output"] for run in runs} == {f"re q{number}" for number in range(200)}

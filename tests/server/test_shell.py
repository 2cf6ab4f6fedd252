"""What stands around every request: limits, errors, ids, the log, the end."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

from glassloop import Agent
from glassloop.server import Caller, Refused
from glassloop.testing import ModelServer, ScriptedModel, say


async def test_what_is_not_there_is_a_problem(site: Any) -> None:
    for path in ("/", "/v1", "/v1/runs/", "/docs", "/redoc"):
        answer = await site.alice.get(path)
        assert (answer.status, answer.problem["code"]) == (404, "not_found")


async def test_a_wrong_method_is_a_problem_and_names_the_right_ones(site: Any) -> None:
    answer = await site.alice("DELETE", "/v1/runs")
    assert (answer.status, answer.problem["code"]) == (405, "method_not_allowed")
    assert answer.headers["Allow"]


@pytest.mark.parametrize(
    "body", [b"{", b"\xff\xfe", b'{"input": "x"} trailing', b"[" * 100_000, b'{"limits": ' + b"9" * 5000 + b"}"]
)
async def test_what_is_not_json_is_a_problem(site: Any, body: bytes) -> None:
    answer = await site.alice.post("/v1/runs", data=body, headers={"Content-Type": "application/json"})
    assert answer.status == 400
    assert answer.problem["detail"]


async def test_another_content_type_is_not_taken_for_json(site: Any) -> None:
    answer = await site.alice.post("/v1/runs", data=b'{"input": "x"}', headers={"Content-Type": "text/plain"})
    assert answer.status == 415
    assert "Content-Type: application/json" in answer.problem["detail"]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("path", ["/v1/runs", "/v1/approvals/x"])
async def test_a_large_body_is_refused(serve: Callable[..., Any], chunked: bool, path: str) -> None:
    site = await serve(Agent(ScriptedModel([])), max_body=1000)
    body = json.dumps({"input": "x" * 2000}).encode()

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 100):
            yield body[start : start + 100]

    headers = {"Content-Type": "application/json"}
    answer = await site.alice.post(path, data=pieces() if chunked else body, headers=headers)
    assert (answer.status, answer.problem["code"]) == (413, "too_large")


async def test_the_usual_size_of_a_body_is_allowed(site: Any) -> None:
    assert (await site.alice.post("/v1/runs", {"input": "x" * 900_000})).status == 202
    large = io.BytesIO(json.dumps({"input": "x" * 1_100_000}).encode())
    answer = await site.alice.post("/v1/runs", data=large, headers={"Content-Type": "application/json"})
    assert answer.status == 413


async def test_a_request_has_an_id_and_a_line_in_the_log(site: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "glassloop.server")
    answer = await site.alice.get("/v1/runs?session=secret-session", headers={"X-Request-ID": "abc-1"})
    assert answer.headers["X-Request-ID"] == "abc-1"
    line = caplog.messages[-1]
    assert line.startswith("GET /v1/runs 200 ")
    assert line.endswith(" ms demo/alice abc-1")
    assert "secret-session" not in caplog.text
    assert "demo-alice" not in caplog.text
    forged = await site.alice.get("/v1/x%0d%0aforged", headers={"X-Request-ID": "a b\u00e9"})
    assert forged.headers["X-Request-ID"].startswith("req_")
    assert forged.problem["request_id"] == forged.headers["X-Request-ID"]
    assert "\n" not in caplog.messages[-1]
    assert "/v1/x??forged 404" in caplog.messages[-1]


async def test_a_failure_of_the_server_tells_no_internals(
    site: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> Any:
        raise RuntimeError("secret in /etc/path")

    monkeypatch.setattr(site.runtime, "runs", broken)
    answer = await site.alice.get("/v1/runs")
    assert (answer.status, answer.problem["code"]) == (500, "internal")
    assert "secret" not in answer.text
    assert "RuntimeError" not in answer.text
    assert "secret in /etc/path" in caplog.text
    assert answer.problem["request_id"] in caplog.text


async def test_added_routes_are_behind_the_same_keys(serve: Callable[..., Any]) -> None:
    site = await serve(Agent(ScriptedModel([])), public=["/open"])

    @site.app.get("/api/who")
    async def who(caller: Caller) -> dict[str, Any]:
        if caller.user == "bob":
            raise Refused(409, "not_bob", "Bob has been here already.")
        return {"user": caller.user, "roles": caller.roles}

    @site.app.get("/open")
    async def open_() -> str:
        return "yes"

    assert (await site.sam.get("/api/who")).json == {"user": "sam", "roles": ["supervisor"]}
    assert (await site.bob.get("/api/who")).problem["code"] == "not_bob"
    assert (await site.nobody.get("/api/who")).status == 401
    assert (await site.nobody.get("/open")).json == "yes"
    assert who
    assert open_
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await site.http.ws_connect(f"{site.url}/api/who")


async def test_the_description_has_every_route_with_words_and_examples(site: Any) -> None:
    document = (await site.nobody.get("/openapi.json")).json
    routes = {(path, method) for path, methods in document["paths"].items() for method in methods}
    assert routes == {
        ("/v1/runs", "post"),
        ("/v1/runs", "get"),
        ("/v1/runs/{run_id}", "get"),
        ("/v1/runs/{run_id}/events", "get"),
        ("/v1/runs/{run_id}/cancel", "post"),
        ("/v1/sessions/{session}", "get"),
        ("/v1/approvals", "get"),
        ("/v1/approvals/{approval_id}", "get"),
        ("/v1/approvals/{approval_id}", "post"),
        ("/healthz", "get"),
        ("/readyz", "get"),
    }
    for path, method in routes:
        operation = document["paths"][path][method]
        assert operation["description"]
        if path.startswith("/v1"):
            assert operation["security"]
            assert "application/problem+json" in operation["responses"]["401"]["content"]
            assert "application/problem+json" in operation["responses"]["422"]["content"]
    assert document["components"]["schemas"]["RunIn"]["examples"]
    assert document["components"]["schemas"]["DecisionIn"]["examples"]


# The end


async def test_while_it_stops_the_server_takes_nothing_new(site: Any) -> None:
    site.app.state.glassloop.closing.begin()
    answer = await site.alice.post("/v1/runs", {"input": "x"})
    assert (answer.status, answer.problem["code"]) == (503, "stopping")
    assert answer.headers["Retry-After"]
    assert (await site.nobody.get("/readyz")).status == 503
    assert (await site.nobody.get("/healthz")).status == 200


async def test_when_it_stops_streams_end_with_a_comment_and_no_end(serve: Callable[..., Any], model_at: Any) -> None:
    with ModelServer(lambda _: say("word ", endless=True)) as server:
        site = await serve(Agent(model_at(server)))
        async with site.alice.stream("POST", "/v1/runs", {"input": "hi", "stream": True}) as stream:
            await stream.until("text_delta")
            site.app.state.glassloop.closing.begin()
            assert "end" not in [frame.event for frame in await stream.all()]
            assert any("stopping" in comment for comment in stream.comments)


async def test_a_store_that_does_not_answer_makes_the_server_unready(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from glassloop.core.errors import StoreError

    async def broken(*_: object) -> Any:
        raise StoreError("disk full on /dev/sda1")

    monkeypatch.setattr(site.runtime, "runs", broken)
    ready = await site.nobody.get("/readyz")
    assert (ready.status, ready.problem["code"]) == (503, "store")
    listed = await site.alice.get("/v1/runs")
    assert (listed.status, listed.problem["code"]) == (503, "store")
    assert "sda1" not in ready.text + listed.text

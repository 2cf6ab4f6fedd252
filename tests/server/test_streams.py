"""Streams: resumed, kept alive, left, and ended so that success and failure differ."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from glassloop import Agent
from glassloop.testing import ModelServer, ScriptedModel, ask, call, fail, say

LIVE = {"text_delta", "thinking_delta", "tool_started", "tool_progress", "reply_restarted"}


def send_note(text: str) -> str:
    """Send a note."""
    return f"sent {text}"


async def test_a_stream_has_the_headers_that_keep_proxies_from_buffering(site: Any) -> None:
    body = {"input": "hi", "stream": True}
    async with site.alice.stream("POST", "/v1/runs", body, Accept_Encoding="gzip, br") as stream:
        headers = stream.response.headers
        assert headers["Content-Type"] == "text/event-stream"
        assert headers["Cache-Control"] == "no-cache"
        assert headers["X-Accel-Buffering"] == "no"
        assert "Content-Encoding" not in headers
        first = await anext(stream.frames())
        assert headers["Location"] == f"/v1/runs/{first.data['run_id']}"


@pytest.mark.parametrize("how", ["body", "accept"])
async def test_a_stream_is_asked_for_in_the_body_or_the_header(site: Any, how: str) -> None:
    body = {"input": "hi", "stream": True} if how == "body" else {"input": "hi"}
    accept = "*/*" if how == "body" else "text/event-stream"
    async with site.alice.stream("POST", "/v1/runs", body, Accept=accept) as stream:
        frames = await stream.all()
    assert [frame.event for frame in frames if frame.id][:2] == ["run_started", "driver_claimed"]
    text = "".join(frame.data["data"]["text"] for frame in frames if frame.event == "text_delta")
    assert text == "It is 21 degrees in Oslo."
    assert frames[-2].data["data"]["output"] == text
    assert (frames[-1].event, frames[-1].data["status"]) == ("end", "completed")
    assert not [frame for frame in frames if frame.event == "error"]


async def test_no_stream_where_the_body_says_so(site: Any) -> None:
    body = {"input": "hi", "stream": False}
    answer = await site.alice.post("/v1/runs", body, headers={"Accept": "text/event-stream"})
    assert answer.status == 202


async def test_journal_events_alone_have_ids(site: Any) -> None:
    async with site.alice.stream("POST", "/v1/runs", {"input": "hi", "stream": True}) as stream:
        frames = await stream.all()
    assert {frame.event for frame in frames if frame.id is None} <= LIVE | {"end"}
    assert [frame.id for frame in frames if frame.id] == list(range(1, len([f for f in frames if f.id]) + 1))
    assert all(frame.data["seq"] == frame.id for frame in frames if frame.id)


@pytest.mark.parametrize("how", ["header", "query", "both"])
async def test_a_stream_is_resumed_after_an_event(site: Any, how: str) -> None:
    run_id = await site.alice.run()
    await site.alice.rested(run_id)
    async with site.alice.stream("GET", f"/v1/runs/{run_id}/events") as stream:
        everything = await stream.all()
    query = {"header": "", "query": "?after=3", "both": "?after=1"}[how]
    headers = {} if how == "query" else {"Last-Event-ID": "3"}
    async with site.alice.stream("GET", f"/v1/runs/{run_id}/events{query}", **headers) as stream:
        rest = await stream.all()
    assert rest == [frame for frame in everything if frame.id is None or frame.id > 3]
    last = max(frame.id or 0 for frame in everything)
    async with site.alice.stream("GET", f"/v1/runs/{run_id}/events?after={last}") as stream:
        assert [frame.event for frame in await stream.all()] == ["end"]


@pytest.mark.parametrize("given", ["x", "-1", "1.5", "９", "1" * 40])
async def test_a_wrong_last_event_id_is_named(site: Any, given: str) -> None:
    run_id = await site.alice.run()
    answer = await site.alice.get(f"/v1/runs/{run_id}/events", headers={"Last-Event-ID": given})
    assert answer.status == 422
    assert answer.problem["errors"][0]["field"] == "last-event-id"


async def test_every_reader_gets_every_journal_event(serve: Callable[..., Any], model_at: Any) -> None:
    gate = asyncio.Event()

    async def wait() -> str:
        """Wait."""
        await gate.wait()
        return "done"

    site = await serve(Agent(ScriptedModel([call("wait"), "done"]), [wait]))
    run_id = await site.alice.run()

    async def read() -> list[int]:
        async with site.alice.stream("GET", f"/v1/runs/{run_id}/events") as stream:
            ready.release()
            return [frame.id async for frame in stream.frames() if frame.id]

    ready = asyncio.Semaphore(0)
    readers = [asyncio.create_task(read()) for _ in range(5)]
    for _ in readers:
        await ready.acquire()
    gate.set()
    seen = await asyncio.gather(*readers)
    assert all(ids == list(range(1, len(ids) + 1)) for ids in seen)
    assert len({len(ids) for ids in seen}) == 1


async def test_silence_is_broken_by_comments(serve: Callable[..., Any]) -> None:
    gate = asyncio.Event()

    async def wait() -> str:
        """Wait."""
        await gate.wait()
        return "done"

    site = await serve(Agent(ScriptedModel([call("wait"), "done"]), [wait]), heartbeat=0.05)
    async with site.alice.stream("POST", "/v1/runs", {"input": "hi", "stream": True}) as stream:
        await stream.until("tool_started")
        lines: list[bytes] = []
        while len(lines) < 3:
            line = await stream.response.content.readline()
            if line.startswith(b":"):
                lines.append(line)
        gate.set()
        assert (await stream.until("end")).data["status"] == "completed"


def test_the_heartbeat_is_quick_enough_for_proxies() -> None:
    from glassloop.server.sse import HEARTBEAT_S

    assert HEARTBEAT_S <= 15


# Endings


async def test_g12_a_failure_after_the_first_event_is_told(serve: Callable[..., Any], model_at: Any) -> None:
    replies = iter([ask(call("send_note", text="a")), *[fail(400, "sk-secret in /srv/app.py")] * 9])
    with ModelServer(lambda _: next(replies)) as server:
        site = await serve(Agent(model_at(server), [send_note]))
        async with site.alice.stream("POST", "/v1/runs", {"input": "hi", "stream": True}) as stream:
            frames = await stream.all()
    assert [frame.event for frame in frames][-2:] == ["error", "end"]
    error = frames[-2].data
    assert (error["code"], error["kind"]) == ("failed", "invalid_request")
    assert error["detail"]
    assert frames[-1].data["status"] == "failed"
    async with site.alice.stream("GET", f"/v1/runs/{error['run_id']}/events?after=1000") as stream:
        assert [frame.event for frame in await stream.all()] == ["error", "end"]


async def test_an_answer_that_is_none_is_told_too(serve: Callable[..., Any]) -> None:
    model = ScriptedModel(lambda request: call("send_note", text=str(len(request.messages))))
    site = await serve(Agent(model, [send_note]))
    body = {"input": "hi", "stream": True, "limits": {"steps": 2}}
    async with site.alice.stream("POST", "/v1/runs", body) as stream:
        frames = await stream.all()
    assert [frame.event for frame in frames][-2:] == ["error", "end"]
    assert (frames[-2].data["code"], frames[-2].data["limit"]) == ("limited", "steps")


async def test_a_stream_that_breaks_off_in_the_server_says_so(
    site: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run_id = await site.alice.run()
    await site.alice.rested(run_id)

    async def broken(*_: object, **__: object) -> Any:
        if False:
            yield
        raise RuntimeError("secret detail")

    monkeypatch.setattr(site.runtime, "watch", broken)
    answer = await site.alice.get(f"/v1/runs/{run_id}/events")
    assert "secret" not in answer.text
    assert answer.text.index("event: error") < answer.text.index("event: end")
    assert '"code":"internal"' in answer.text
    assert "secret detail" in caplog.text


# Leaving


async def test_g10_a_streamed_run_stops_when_its_reader_has_gone(serve: Callable[..., Any], model_at: Any) -> None:
    with ModelServer(lambda _: say("word ", endless=True)) as server:
        site = await serve(Agent(model_at(server)))
        async with site.alice.stream("POST", "/v1/runs", {"input": "hi", "stream": True}) as stream:
            run_id = (await stream.until("text_delta")).data["run_id"]
        left = time.monotonic()
        assert await asyncio.to_thread(server.requests[0].wait, 6)
        assert server.requests[0].disconnected_at is not None
        assert 1.5 < server.requests[0].disconnected_at - left < 3.5
        assert (await site.alice.rested(run_id))["status"] == "cancelled"
        assert len(server.requests) == 1


async def test_a_reader_that_comes_back_in_time_keeps_the_run(serve: Callable[..., Any], model_at: Any) -> None:
    with ModelServer(lambda _: say("word ", endless=True)) as server:
        site = await serve(Agent(model_at(server)))
        async with site.alice.stream("POST", "/v1/runs", {"input": "hi", "stream": True}) as stream:
            run_id = (await stream.until("text_delta")).data["run_id"]
        async with site.alice.stream("GET", f"/v1/runs/{run_id}/events?after=2") as stream:
            end = time.monotonic() + 3
            while time.monotonic() < end:
                await stream.until("text_delta")
        await site.alice.post(f"/v1/runs/{run_id}/cancel")


async def test_a_background_run_goes_on_and_its_stream_is_taken_up_again(
    serve: Callable[..., Any], model_at: Any
) -> None:
    gate = asyncio.Event()

    async def brain(_: object) -> Any:
        await gate.wait()
        return say("the answer")

    async with ModelServer(brain) as server:
        site = await serve(Agent(model_at(server)))
        body = {"input": "hi", "stream": True, "background": True}
        async with site.alice.stream("POST", "/v1/runs", body) as stream:
            seen = await stream.until("model_requested")
        await asyncio.sleep(2.5)  # longer than a run would be kept that is not in the background
        run_id = seen.data["run_id"]
        assert (await site.alice.get(f"/v1/runs/{run_id}")).json["status"] == "running"
        async with site.alice.stream("GET", f"/v1/runs/{run_id}/events", **{"Last-Event-ID": str(seen.id)}) as stream:
            gate.set()
            frames = await stream.all()
    ids = [frame.id for frame in frames if frame.id]
    assert ids[0] == (seen.id or 0) + 1
    assert frames[-1].data["status"] == "completed"


async def test_a_run_that_was_started_by_a_plain_request_outlives_its_readers(
    serve: Callable[..., Any], model_at: Any
) -> None:
    with ModelServer(lambda _: say("word ", endless=True)) as server:
        site = await serve(Agent(model_at(server)))
        run_id = await site.alice.run()
        async with site.alice.stream("GET", f"/v1/runs/{run_id}/events") as stream:
            await stream.until("text_delta")
        await asyncio.sleep(2.5)  # longer than a streamed run would be kept
        assert (await site.alice.get(f"/v1/runs/{run_id}")).json["status"] == "running"
        await site.alice.post(f"/v1/runs/{run_id}/cancel")


async def test_a_reader_that_does_not_read_holds_nobody_up(serve: Callable[..., Any], model_at: Any) -> None:
    with ModelServer(lambda _: say("word " * 2000, piece=4)) as server:
        site = await serve(Agent(model_at(server)))
        body = {"input": "hi", "stream": True}
        async with aiohttp.ClientSession(read_bufsize=1024) as http:
            request = http.post(f"{site.url}/v1/runs", json=body, headers=site.alice.headers)
            async with request as response:
                run_id = response.headers["Location"].rpartition("/")[2]
                assert (await site.alice.rested(run_id))["status"] == "completed"
                assert "event: end" in await response.text()


async def test_a_reader_that_never_reads_counts_as_gone(
    serve: Callable[..., Any], model_at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glassloop.server.sse._STALLED_S", 0.2)
    with ModelServer(lambda _: say("word " * 500, piece=2500, endless=True)) as server:
        site = await serve(Agent(model_at(server)))
        body = json.dumps({"input": "hi", "stream": True})
        lines = [
            *("POST /v1/runs HTTP/1.1", "Host: 127.0.0.1", "Authorization: Bearer demo-alice"),
            *("Content-Type: application/json", f"Content-Length: {len(body)}", "", body),
        ]
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", int(site.url.rpartition(":")[2])))
            client.sendall("\r\n".join(lines).encode())
            assert await asyncio.to_thread(server.wait_for_requests, 1)
            assert await asyncio.to_thread(server.requests[0].wait, 20)
        assert server.requests[0].disconnected_at is not None

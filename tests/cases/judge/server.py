"""The scripted model server: the n-th request of a run gets the n-th item of its case's script.

Script items: `{"json", "status", "headers"}`, `{"sse": [blocks]}`, `{"sse_raw", "split_every_bytes"}` or
`{"sse_endless", "delay_ms"}`; past the end: 500, counted in `overrun`. Every request is kept with its time and its
violations of the wire format. Each run has a probe, a second run that always answers ok: what it receives shows
whether a conversation can still be sent after a failure.
"""

from __future__ import annotations

import json
import math
import re
import select
import socket
import threading
import time
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from judge.replies import Answer, Item, Wire, as_chunks, as_events, ok
from judge.shape import mapping
from judge.wire import strict_loads, wire_anthropic, wire_openai

ENDLESS_SECONDS = 25


@dataclass
class Request:
    """One recorded request: monotonic time, raw body, parsed body, violations."""

    t: float
    raw: bytes
    body: Any
    wire: list[str]


@dataclass
class Run:
    """What one play of a case asked for, and what it is to get."""

    id: str
    root: str
    script: list[Item] = field(default_factory=list[Item])
    answer: Answer | None = None
    probe: Run | None = None
    requests: list[Request] = field(default_factory=list[Request])
    served: int = 0
    overrun: int = 0
    disconnect_t: float | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        """The base address for the OpenAI wire."""
        return self.root + "/v1"


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True
    runs: dict[str, Run]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _HTTPServer  # pyright: ignore[reportIncompatibleVariableOverride]  # the base class knows any server

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._json(404, {"error": {"message": "no such page"}})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = re.match(r"^/c/([^/]+)/(?:v1/)?(chat/completions|messages)(?:\?.*)?$", self.path)
        run = self.server.runs.get(path[1]) if path else None
        if path is None or run is None:
            self._lost(raw)
            return
        wire: Wire = "anthropic" if path[2] == "messages" else "openai"
        request = self._read(raw, wire, run)
        with run.lock:
            n, run.served = run.served, run.served + 1
            run.requests.append(request)
        if run.answer:
            item = run.answer(request.body, wire)
        elif n < len(run.script):
            item = run.script[n]
        else:
            run.overrun += 1
            self._json(500, {"error": {"message": "request beyond the script"}})
            return
        try:
            self._play(item, run, request.body, wire)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _lost(self, raw: bytes) -> None:
        known = re.match(r"^/c/([^/]+)/", self.path)
        if known and known[1] in self.server.runs:
            wire = ["unknown path " + self.path]
            self.server.runs[known[1]].requests.append(Request(time.monotonic(), raw, None, wire))
        self._json(404, {"error": {"message": "unknown path " + self.path}})

    def _read(self, raw: bytes, wire: Wire, run: Run) -> Request:
        request = Request(time.monotonic(), raw, None, [])
        try:
            request.body = strict_loads(raw)
        except ValueError as error:
            request.wire.append(f"(8) {error}")
            try:
                request.body = json.loads(raw.decode("utf-8", "replace"))
            except ValueError:
                request.body = {}
        if wire == "openai":
            request.wire += wire_openai(request.body)
        else:
            replies = [mapping(item.get("json")) for item in run.script[: run.served]]
            request.wire += wire_anthropic(request.body, [reply.get("content") for reply in replies])
        return request

    def _json(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body, ensure_ascii=False).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, _with_date(value))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def _play(self, item: Item, run: Run, asked: Any, wire: Wire) -> None:
        if "json" in item or "status" in item:
            status, body = item.get("status", 200), item.get("json", {})
            if status == 200 and asked.get("stream"):
                pieces = as_chunks(body) if wire == "openai" else as_events(body)
                self._stream([piece.encode() for piece in pieces])
            else:
                self._json(status, body, item.get("headers"))
        elif "sse" in item:
            self._stream([f"{block}\n\n".encode() for block in item["sse"]])
        elif "sse_raw" in item:
            data = item["sse_raw"].encode()
            size = item.get("split_every_bytes") or len(data)
            self._stream([data[i : i + size] for i in range(0, len(data), size)])
        elif "sse_endless" in item:
            self._endless(item, run)
        else:
            self._json(500, {"error": {"message": "script item not understood"}})

    def _head(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _stream(self, pieces: list[bytes]) -> None:
        self._head()
        for piece in pieces:
            self.wfile.write(piece)
            self.wfile.flush()

    def _endless(self, item: Item, run: Run) -> None:
        self._head()
        line = f"data: {json.dumps(item['sse_endless'], ensure_ascii=False)}\n\n".encode()
        end = time.monotonic() + ENDLESS_SECONDS
        try:
            while time.monotonic() < end:
                self.wfile.write(line)
                self.wfile.flush()
                readable, _, _ = select.select([self.connection], [], [], item.get("delay_ms", 20) / 1000)
                if readable and not self.connection.recv(1):
                    break
        except OSError:
            pass
        run.disconnect_t = time.monotonic()


def _with_date(value: str) -> str:
    """Put a date in place of `<HTTP-date now+N>`; it has whole seconds, rounded up so that no wait is too short."""
    if "<HTTP-date" not in value:
        return value
    seconds = float((re.search(r"now\+(\d+)", value) or ["", "0"])[1])
    return formatdate(math.ceil(time.time() + seconds), usegmt=True)


class Server:
    """The server, on a free port of this machine, until `close`."""

    def __init__(self) -> None:
        self._http = _HTTPServer(("127.0.0.1", 0), _Handler)
        self._http.runs = {}
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def new_run(self, script: list[Item] | None = None, answer: Answer | None = None) -> Run:
        """A run and its probe."""
        number = len(self._http.runs)
        root = f"http://127.0.0.1:{self._http.server_address[1]}/c/"
        probe = Run(f"p{number}", f"{root}p{number}", answer=ok)
        run = Run(f"r{number}", f"{root}r{number}", list(script or []), answer, probe)
        self._http.runs |= {run.id: run, probe.id: probe}
        return run

    def close(self) -> None:
        """Stop listening."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

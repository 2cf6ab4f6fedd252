"""Runs the stages: peers interleaved, in random order within each repetition, one raw row per measurement.

Rows go to `raw/<stage>.jsonl`.  A repetition's name is unique, so that rows of several sessions may lie in
one file and a ratio is still formed only within a repetition.
"""

import json
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Iterable
from typing import Any, TextIO

from bench.environments import BENCH, megabytes, packages, python
from bench.processes import Server, Worker
from bench.registry import Entry
from bench.stages import Order, Stage

RAW = BENCH / "raw"
IMPORT = """
import sys, time
wall, cpu = time.perf_counter(), time.process_time()
{statement}
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
modules, resident = len(sys.modules), int(open("/proc/self/statm").read().split()[1]) * 4
import json
print(json.dumps(dict(wall=wall, cpu=cpu, modules=modules, resident_kb=resident)))
"""


class Rows:
    """The raw file of one stage."""

    def __init__(self, stage: str, keep: bool) -> None:
        RAW.mkdir(exist_ok=True)
        self._file = (RAW / f"{stage}.jsonl").open("a" if keep else "w")

    def put(self, **row: Any) -> None:
        print(json.dumps({**row, "load": os.getloadavg()[0]}), file=self._file, flush=True)


class Session:
    """One run of the benchmark over some peers."""

    def __init__(self, entries: list[Entry], quick: bool, keep: bool, factor: float = 1.0) -> None:
        self.entries = entries
        self.quick = quick
        self.keep = keep
        self.factor = factor
        self.name = time.strftime("%Y%m%dT%H%M%S")

    def repetitions(self, stage: Stage) -> int:
        """How often a stage is repeated; 0 leaves it out."""
        return round(stage.repetitions(self.quick) * self.factor)

    def measure(self, stages: list[Stage]) -> None:
        """All stages that need the server."""
        RAW.mkdir(exist_ok=True)
        stages = [stage for stage in stages if self.repetitions(stage)]
        with (RAW / "processes.log").open("w") as log, Server(log) as server:
            resident = [stage for stage in stages if not stage.fresh]
            if resident:
                self._resident(resident, server, log)
            for stage in stages:
                if stage.fresh:
                    self._fresh(stage, server, log)

    def _resident(self, stages: list[Stage], server: Server, log: TextIO) -> None:
        """Resident stages take turns, so that a noisy minute falls on all of them alike."""
        workers = [Worker(entry, server, log) for entry in self.entries]
        rows = {stage.name: Rows(stage.name, self.keep) for stage in stages}
        try:
            for repetition in range(max(map(self.repetitions, stages))):
                random.shuffle(workers)
                for stage in stages:
                    if repetition < self.repetitions(stage):
                        start = time.monotonic()
                        self._round(stage, f"{self.name}-{repetition}", workers, server, rows[stage.name])
                        _say(f"{stage.name} {repetition + 1}/{self.repetitions(stage)}", start)
        finally:
            for worker in workers:
                worker.close()

    def _round(self, stage: Stage, name: str, workers: list[Worker], server: Server, rows: Rows) -> None:
        for case, order in stage.cases.items():
            for worker in workers:
                if stage.takes(worker.entry):
                    rows.put(rep=name, peer=worker.key, case=case, **_ask(worker, order, server))

    def _fresh(self, stage: Stage, server: Server, log: TextIO) -> None:
        """Stages that look at memory: a process per measurement, one at a time."""
        rows, entries = Rows(stage.name, self.keep), [entry for entry in self.entries if stage.takes(entry)]
        for repetition in range(self.repetitions(stage)):
            start = time.monotonic()
            random.shuffle(entries)
            for entry in entries:
                worker = Worker(entry, server, log)
                self._round(stage, f"{self.name}-{repetition}", [worker], server, rows)
                worker.close()
            _say(f"{stage.name} {repetition + 1}/{self.repetitions(stage)}", start)

    def weigh(self, repetitions: int) -> None:
        """Import cost in a cold process with a warm page cache, and what the environment holds."""
        rows, entries = Rows("import", self.keep), [entry for entry in self.entries if entry.statement]
        start = time.monotonic()
        for repetition in range(-1, repetitions):  # number -1 compiles and fills the page cache
            random.shuffle(entries)
            for entry in entries:
                result = _import(entry)
                if repetition >= 0:
                    rows.put(rep=f"{self.name}-{repetition}", peer=entry.key, case="import", **result)
        for entry in entries:
            held = packages(entry.environment)
            rows.put(peer=entry.key, case="weight", packages=held, mb=megabytes(entry.environment))
        _say("import", start)


def _ask(worker: Worker, order: Order, server: Server) -> dict[str, Any]:
    """One measurement with what the server saw of it; a refused request makes it an error."""
    server.get("/reset")
    result = worker.ask(order)
    seen = server.get("/stats")
    if seen["errors"] and "error" not in result:
        result["error"] = f"the server refused {seen['errors']} requests: {seen['last_error'][:200]}"
    if "error" in result:
        print(f"  {worker.key} {order}: {result['error'][:300]}", flush=True)
    return {**result, "server": seen}


def _import(entry: Entry) -> dict[str, Any]:
    command = [python(entry.environment), "-c", IMPORT.format(statement=entry.statement)]
    # pip compiles what it installs, but not a tree installed in place: left to itself Python keeps what it compiles
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tempfile.gettempdir(), env=environment)
    if done.returncode:
        print(f"  {entry.key}: {done.stderr.strip()[-300:]}", flush=True)
        return {"error": done.stderr[-300:]}
    return json.loads(done.stdout)


def _say(what: str, start: float) -> None:
    took, load = time.monotonic() - start, os.getloadavg()[0]
    print(f"{time.strftime('%T')} {what}: {took:.0f} s, load {load:.1f}", flush=True)


def smoke(entries: Iterable[Entry]) -> bool:
    """Every peer once, so that a protocol error shows before a long session; returns whether all is well."""
    RAW.mkdir(exist_ok=True)
    fine = True
    with (RAW / "processes.log").open("w") as log, Server(log) as server:
        for entry in entries:
            worker = Worker(entry, server, log)
            for order in ({"op": "single", "k": 3, "p": 2}, {"op": "stream", "chunks": 20}):
                result = _ask(worker, order, server)
                fine &= "error" not in result
                print(f"{entry.key} {order['op']}: {result.get('error', 'ok')}", flush=True)
            worker.close()
    return fine

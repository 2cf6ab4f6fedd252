"""Who holds a lock or a lease: the identity of a process, and whether that process is still there."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """One process, never confused with a later one of the same pid.

    Args:
        boot: names the boot of the machine it runs on; empty where it cannot be known.
        namespace: the pid namespace (container) in which `pid` counts.
        pid: its number.
        started: when it started, in whatever unit the system gives; empty where it cannot be known.
    """

    boot: str
    namespace: str
    pid: int
    started: str

    def __str__(self) -> str:
        return f"{self.boot}/{self.namespace}/{self.pid}/{self.started}"

    @staticmethod
    def parse(text: str) -> Process:
        """Read what `str` wrote.

        Raises:
            ValueError: `text` is something else.
        """
        boot, namespace, pid, started = text.split("/", 3)
        return Process(boot, namespace, int(pid), started)


def this_process() -> Process:
    """The process that asks; after a fork, the child."""
    return _process(os.getpid())


def alive(process: Process) -> bool | None:
    """Whether `process` still runs; None where that cannot be seen from here (another container, another system)."""
    here = this_process()
    if process == here:
        return True
    if process.boot != here.boot:
        return False  # the file's lock manager is the kernel's: all who use the file share one boot
    if process.namespace != here.namespace:
        return None
    started = _started(process.pid)
    if started is None:
        return False
    return started == process.started if started and process.started else None


def alive_here(owner: str) -> bool | None:
    """Whether the process that `str(Process)` named runs on this machine, for a store that machines share.

    None where that cannot be seen: of what runs, or ran, under another boot, or in another container.
    """
    try:
        process = Process.parse(owner)
    except ValueError:
        return None
    here = this_process()
    return alive(process) if process.boot == here.boot and here.boot else None


def is_gone_here(owner: str) -> bool:
    """Whether the process that `str(Process)` named has ended on this machine; False where that cannot be seen."""
    return alive_here(owner) is False


class Liveness(Protocol):
    """Tells whether the process that drives a run still lives, as the store that holds the run can know it."""

    async def alive(self, owner: str) -> bool | None:
        """Whether the process that `str(Process)` named lives; None where that cannot be known."""
        ...


class LocalLiveness:
    """Of processes that share a file: all of them are on this machine."""

    async def alive(self, owner: str) -> bool | None:
        """See `Liveness.alive`."""
        try:
            return await asyncio.to_thread(alive, Process.parse(owner))
        except ValueError:
            return None


@cache
def _process(pid: int) -> Process:
    return Process(_boot(), _namespace(), pid, _started(pid) or "")


def _boot() -> str:
    with suppress(OSError):
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return _ask("sysctl", "-n", "kern.bootsessionuuid") if sys.platform == "darwin" else ""


def _namespace() -> str:
    with suppress(OSError):
        return os.readlink(_PROC / "self/ns/pid").strip("pid:[]")
    return ""


def _started(pid: int) -> str | None:
    """When `pid` started; None if there is no such process, empty if nobody can tell."""
    if sys.platform == "win32":
        return ""
    try:
        # proc_pid_stat(5): the name in brackets may hold anything; after it come the state and, 19 further, the start
        state, *rest = (_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return None if state in "ZXx" else rest[18]
    except OSError:
        return (_ask("ps", "-o", "lstart=", "-p", str(pid)).replace(" ", "")) if _exists(pid) else None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _ask(*command: str) -> str:
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    return ""


this_process()  # read from the system now, and not on an event loop later
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=this_process)

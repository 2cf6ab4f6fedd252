"""Whether the process that holds something is still there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from glassloop.stores.owner import Process, alive, this_process

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def identity_of_child(code: str) -> tuple[subprocess.Popen[str], Process]:
    script = f"from glassloop.stores.owner import this_process; print(this_process(), flush=True); {code}"
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    assert child.stdout is not None
    return child, Process.parse(child.stdout.readline().strip())


def test_this_process_is_alive() -> None:
    assert alive(this_process()) is True
    assert this_process().pid == os.getpid()


def test_an_identity_survives_being_written_down() -> None:
    assert Process.parse(str(this_process())) == this_process()


@pytest.mark.parametrize("text", ["", "nonsense", "a/b/not a number/c"])
def test_nonsense_is_no_identity(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Process.parse(text)


def test_a_child_is_alive_until_it_is_killed() -> None:
    child, process = identity_of_child("input()")
    assert alive(process) is True
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, but nobody has taken note: a zombie
    assert alive(process) is False
    child.communicate()
    assert alive(process) is False


def test_a_process_of_an_earlier_boot_is_gone() -> None:
    assert alive(replace(this_process(), boot="an earlier one")) is False


@linux
def test_a_pid_that_was_given_again_is_another_process() -> None:
    assert alive(replace(this_process(), started="1")) is False


@linux
def test_another_container_cannot_be_looked_into() -> None:
    assert alive(replace(this_process(), namespace="4026539999")) is None


def test_an_unknown_start_tells_nothing_about_a_pid_in_use() -> None:
    assert alive(replace(this_process(), started="")) is None


@linux
def test_a_forked_child_is_another_process() -> None:
    parent = this_process()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, str(this_process()).encode())
        os._exit(0)
    os.close(writing)
    told = Process.parse(os.read(reading, 1_000).decode())
    os.close(reading)
    os.waitpid(pid, 0)
    assert told.pid == pid
    assert told != parent

"""One line that is edited at a terminal, with nothing that Ctrl-C or Ctrl-Z could be lost in."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import Any

from glassloop.cli.signals import Insistent


def line_editor() -> Any:
    """The module for editing lines, where this Python has one."""
    try:
        import readline
    except ImportError:
        return None
    readline.set_auto_history(False)  # answers to questions are not questions to the agent
    return readline


def edited_line(prompt: str) -> str:
    """One line without its end, edited with `line_editor`, in the main thread.

    A terminal throws away what was typed before a Ctrl-C or Ctrl-Z. Where that happens after readline has seen that
    there is a key and before it reads it, it waits for another one, and no signal ends that wait. So the terminal is
    told to keep what was typed (POSIX.1-2017, 11.2.5, NOFLSH), and it is thrown away here.

    Raises:
        EOFError: Ctrl-D.
        KeyboardInterrupt: Ctrl-C.
        OSError: the terminal is gone.
    """
    import termios

    keyboard = sys.stdin.fileno()
    suspends = signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL
    try:
        before = termios.tcgetattr(keyboard)
        kept = list(before)
        kept[3] |= termios.NOFLSH
        try:
            termios.tcsetattr(keyboard, termios.TCSANOW, kept)
            if suspends:
                signal.signal(signal.SIGTSTP, _suspending(keyboard, before, prompt))
            return input(prompt)
        except KeyboardInterrupt:
            with suppress(termios.error):  # the signal may be the hang-up of this very terminal
                termios.tcflush(keyboard, termios.TCIFLUSH)
            raise
        finally:
            with suppress(termios.error):
                termios.tcsetattr(keyboard, termios.TCSANOW, before)
            if suspends:
                signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    except termios.error as error:
        raise OSError(*error.args) from None


def _suspending(keyboard: int, before: list[Any], prompt: str) -> Insistent:
    """What Ctrl-Z does: the terminal is the shell's until `fg`, then the line is edited further.

    readline leaves signals to Python, and so neither gives the terminal back nor takes it again.
    """
    import readline
    import termios

    def suspend(number: int) -> None:
        edited = termios.tcgetattr(keyboard)
        termios.tcsetattr(keyboard, termios.TCSANOW, before)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # goes on here after `fg`
        signal.signal(number, handler)
        termios.tcsetattr(keyboard, termios.TCSANOW, edited)
        os.write(sys.stdout.fileno(), f"{prompt}{readline.get_line_buffer()}".encode(errors="replace"))

    handler = Insistent(suspend)
    return handler

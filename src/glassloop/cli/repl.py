"""The conversation at the terminal: read a line, run the agent, show the answer, again."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from glassloop.cli.background import Background
from glassloop.cli.deciding import Decider
from glassloop.cli.keyboard import Approvals, Lines
from glassloop.cli.output import View, use_colour
from glassloop.cli.problems import CANCELLED, OK, report, say
from glassloop.cli.recorded import opened
from glassloop.cli.running import Options, approve, beginning, chosen_model, conclude
from glassloop.cli.signals import Terminated, ended_by_signals
from glassloop.cli.target import Target
from glassloop.cli.watching import Interrupted, watch
from glassloop.core.ids import new_id
from glassloop.journal.projection import RunFilter

if TYPE_CHECKING:
    from glassloop.models.model import Model
    from glassloop.stores import Store

HELP = """/trace on|off    show or hide every thought, action and observation
/session [NAME]  the name of this conversation, or go on with another
/new             begin a new conversation
/runs            the runs of this conversation
/exit            leave (also Ctrl-D, or Ctrl-C twice)
Ctrl-C           cancel the answer that is being worked on"""


class Repl:
    """One `glassloop chat`.

    Args:
        target: the agent.
        given: what the command line says about its runs.
        trace: whether to begin with the trace on.
        json: print each result as one JSON object.
        no_color: no colours.
        debug: show tracebacks.
    """

    def __init__(self, target: Target, given: Options, *, trace: bool, json: bool, no_color: bool, debug: bool) -> None:
        self.target = target
        self.given = given
        self.trace = trace
        self.json = json
        self.colour = use_colour(no_color)
        self.debug = debug
        self.lines = Lines()
        ask = approve if given.yes else Approvals(self.lines, given.user)
        self.ask = Decider(ask, target.agent, given.roles)
        self.background = Background()
        self.store: Store
        self.model: str | Model | None = None

    def run(self) -> int:
        """Talk until the user leaves; the exit code."""
        with ExitStack() as held:
            held.enter_context(ended_by_signals())
            held.enter_context(self.background)
            self.store = held.enter_context(opened(self.given.store, self.background, os.environ.get("SESSIONS")))
            self.model = held.enter_context(chosen_model(self.target, self.given.model))
            say(f"Session {self.given.session}, recorded in {self.store.places}. /help lists the commands.")
            return self._talk()

    def _talk(self) -> int:
        warned = False
        while True:
            try:
                line = self.lines.read("> ", remember=True).strip()
            except EOFError:
                return self._leave()
            except Terminated:
                return CANCELLED
            except KeyboardInterrupt:
                if warned:
                    return self._leave()
                warned = True
                say("\nCtrl-C again, Ctrl-D or /exit leaves.")
                continue
            warned = False
            if line == "/exit":
                return OK
            if line.startswith("/"):
                self._command(*line.split(maxsplit=1))
            elif line and not self._answer(line):
                return CANCELLED

    def _leave(self) -> int:
        if self.lines.terminal:
            say("")  # the shell's prompt on a line of its own
        return OK

    def _answer(self, question: str) -> bool:
        """Run the agent on one question and show what comes of it; False to leave the program."""
        view = View(trace=self.trace, json=self.json, colour=self.colour)
        begin = beginning(self.target, question, self.given, self.model, self.store)
        try:
            conclude(watch(self.background, begin, view.event, self.ask), self.target, view, self.given)
        except Interrupted as interrupted:
            if interrupted.result is not None:
                view.end(interrupted.result)
            return not interrupted.leave
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - one question that failed does not end the conversation
            report(error, debug=self.debug, json=self.json)
        return True

    def _command(self, name: str, argument: str = "") -> None:
        match name, argument.strip():
            case "/help", "":
                say(HELP)
            case "/trace", "on" | "off" as state:
                self.trace = state == "on"
                say(f"The trace is {state}.")
            case "/session", "":
                say(f"Session {self.given.session}, recorded in {self.store.places}.")
            case "/session", session:
                self._go_to(session)
            case "/new", "":
                self._go_to(new_id("chat"))
            case "/runs", "":
                self._runs()
            case _:
                say(f"There is no command {name} {argument}".rstrip() + "; /help lists them.")

    def _go_to(self, session: str) -> None:
        self.given = replace(self.given, session=session)
        say(f"Session {session}.")

    def _runs(self) -> None:
        from glassloop.cli.tables import print_runs

        wanted = RunFilter(session=self.given.session, agent=self.target.agent.name)
        print_runs(self.background.call(self.store.journal.runs(wanted)), colour=self.colour)

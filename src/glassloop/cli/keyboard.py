"""What a person types: lines, and decisions about calls that are held."""

from __future__ import annotations

import getpass
import json
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from glassloop.cli.editing import edited_line, line_editor
from glassloop.cli.output import standard_output
from glassloop.cli.plans import plan_of, show_plan
from glassloop.cli.printable import printable
from glassloop.cli.signals import insist_on_interrupts
from glassloop.core.rendering import render_json, render_name, visible
from glassloop.core.result import Decision, PendingApproval

_YES = ("y", "yes", "是", "好", "可以", "同意")
_NO = ("n", "no", "否", "不", "不行", "拒绝")
_EDIT = ("e", "edit", "改", "修改")


class Lines:
    """Lines from standard input: with editing and history at a terminal, plain ones from a pipe.

    Reads in the thread that calls it, which must be the main one: there Ctrl-C interrupts it.
    """

    def __init__(self) -> None:
        self.terminal = sys.stdin.isatty()
        # Python edits lines on standard output alone, which may be kept for JSON
        may_edit = self.terminal and sys.stdout is standard_output() and sys.stdout.isatty()
        self._readline = line_editor() if may_edit else None
        if self.terminal:
            insist_on_interrupts()

    def read(self, prompt: str, *, remember: bool = False, draft: str = "") -> str:
        """One line without its end.

        Args:
            prompt: shown at a terminal only.
            remember: keep the line in the history.
            draft: what stands on the line already, to be edited.

        Raises:
            EOFError: there are no more lines (Ctrl-D).
            KeyboardInterrupt: Ctrl-C.
        """
        editor = self._readline
        if editor is None:
            return self._plain(prompt)
        # not a function of Python's own: one that Ctrl-C interrupts would take the interrupt with it, unseen
        editor.set_startup_hook(partial(editor.insert_text, draft) if draft else None)
        line = edited_line(prompt)
        if remember and line.strip():
            editor.add_history(line)
        return line

    def _plain(self, prompt: str) -> str:
        if self.terminal:
            sys.stderr.write(prompt)
            sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")


@dataclass(frozen=True)
class _Words:
    """How a human is asked."""

    ask: str
    why: str
    draft: str
    must: str


_CALL = _Words(
    "Run it? [y]es, [n]o, [e]dit the arguments: ",
    "Why not (for the model; may be empty): ",
    "Arguments as JSON: ",
    "The arguments must be a JSON object, e.g. {}.",
)
_PLAN = _Words(
    "Carry it out? [y]es, [n]o, [e]dit the plan: ",
    "Why not (may be empty): ",
    "Plan as JSON: ",
    'The plan must be a JSON object: {"steps": [...]}.',
)


class Approvals:
    """Asks about held calls: yes, no with a reason for the model, or other arguments; about plans; and what calls ask.

    Args:
        lines: where the answers come from.
        by: who decides; default the login name.
    """

    def __init__(self, lines: Lines, by: str | None = None) -> None:
        self.lines = lines
        self.by = by or login()

    def __call__(self, pending: PendingApproval) -> Decision:
        """Ask until there is an answer; no more input is a no.

        Raises:
            KeyboardInterrupt: Ctrl-C.
        """
        self._show(pending)
        try:
            return self._answer(pending) if pending.kind == "question" else self._decision(pending)
        except EOFError:
            self._tell("")
            return Decision("deny", reason="nobody answered", by=self.by)

    def _show(self, pending: PendingApproval) -> None:
        if pending.kind == "question":
            self._tell(f"{pending.tool} asks: {_set_in(pending.summary)}")
            for number, choice in enumerate(pending.choices, 1):
                self._tell(f"  {number}. {_set_in(choice)}")
            return
        role = f", needs the role {pending.role}" if pending.role else ""
        plan = plan_of(pending)
        if plan is not None:
            self._tell(f"The plan needs your yes{role}:")
            show_plan(plan)
            return
        if pending.kind == "doubt":
            self._tell(f"{pending.tool} had begun before the program ended: it may have happened already.")
        self._tell(f"{pending.tool} needs your yes (risk {pending.risk}{role}). Arguments:")
        for name, value in pending.arguments.items():
            self._tell(f"  {render_name(name)}: {render_json(value)}")
        if not pending.arguments:
            self._tell("  none")

    def _decision(self, pending: PendingApproval) -> Decision:
        words = _CALL if plan_of(pending) is None else _PLAN
        while True:
            answer = self.lines.read(words.ask).strip().lower()
            if answer in _YES:
                return Decision("approve", by=self.by)
            if answer in _NO:
                reason = self.lines.read(words.why).strip()
                return Decision("deny", reason=reason or None, by=self.by)
            if answer in _EDIT and (arguments := self._edited(pending, words)) is not None:
                return Decision("edit", by=self.by, arguments=arguments)
            if answer not in _EDIT:
                self._tell("Please answer y, n or e.")

    def _answer(self, pending: PendingApproval) -> Decision:
        """Ask until there is an answer: where there are choices, one of them or its number."""
        choices = pending.choices
        numbers = {str(number): choice for number, choice in enumerate(choices, 1)}
        while True:
            said = self.lines.read("Your answer (its number will do): " if choices else "Your answer: ").strip()
            answer = said if said in choices else numbers.get(said, "" if choices else said)
            if answer:
                return Decision("answer", by=self.by, answer=answer)
            self._tell("Please give one of these answers." if choices else "Please answer; Ctrl-D gives none.")

    def _edited(self, pending: PendingApproval, words: _Words) -> dict[str, Any] | None:
        shown: Any = pending.arguments["plan"] if words is _PLAN else dict(pending.arguments)
        text = self.lines.read(words.draft, draft=render_json(shown)).strip()
        try:
            value: Any = json.loads(text)
        except ValueError as error:
            self._tell(f"This is not JSON: {error}.")
            return None
        if not isinstance(value, dict):
            self._tell(words.must)
            return None
        return {"plan": value} if words is _PLAN and "plan" not in value else cast("dict[str, Any]", value)

    def _tell(self, line: str) -> None:
        sys.stderr.write(f"{printable(line)}\n")
        sys.stderr.flush()


def _set_in(text: str) -> str:
    """Lines that cannot be taken for others than those of one text."""
    return visible(text.strip()).replace("\n", "\n  ")


def login() -> str:
    """The name of who sits at the terminal."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "terminal"

"""What a person types: lines, and decisions about calls that are held."""

from __future__ import annotations

import getpass
import json
import sys
from typing import Any, cast

from glassloop.cli.printable import printable
from glassloop.cli.signals import insist_on_interrupts
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
        self._readline = _readline() if self.terminal and sys.stdout.isatty() else None
        if self._readline is not None:
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
        editor.set_startup_hook((lambda: editor.insert_text(draft)) if draft else None)
        line = input(prompt)
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


class Approvals:
    """Asks about held calls: yes, no with a reason for the model, or other arguments.

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
            return self._decision(pending)
        except EOFError:
            self._tell("")
            return Decision("deny", reason="nobody answered", by=self.by)

    def _show(self, pending: PendingApproval) -> None:
        role = f", needs the role {pending.role}" if pending.role else ""
        self._tell(f"{pending.tool} needs your yes (risk {pending.risk}{role}). Arguments:")
        for name, value in pending.arguments.items():
            self._tell(f"  {name}: {json.dumps(value, ensure_ascii=False)}")
        if not pending.arguments:
            self._tell("  none")

    def _decision(self, pending: PendingApproval) -> Decision:
        while True:
            answer = self.lines.read("Run it? [y]es, [n]o, [e]dit the arguments: ").strip().lower()
            if answer in _YES:
                return Decision("approve", by=self.by)
            if answer in _NO:
                reason = self.lines.read("Why not (for the model; may be empty): ").strip()
                return Decision("deny", reason=reason or None, by=self.by)
            if answer in _EDIT and (arguments := self._edited(pending)) is not None:
                return Decision("edit", by=self.by, arguments=arguments)
            if answer not in _EDIT:
                self._tell("Please answer y, n or e.")

    def _edited(self, pending: PendingApproval) -> dict[str, Any] | None:
        draft = json.dumps(dict(pending.arguments), ensure_ascii=False)
        text = self.lines.read("Arguments as JSON: ", draft=draft).strip()
        try:
            value: Any = json.loads(text)
        except ValueError as error:
            self._tell(f"This is not JSON: {error}.")
            return None
        if not isinstance(value, dict):
            self._tell("The arguments must be a JSON object, e.g. {}.")
            return None
        return cast("dict[str, Any]", value)

    def _tell(self, line: str) -> None:
        sys.stderr.write(f"{printable(line)}\n")
        sys.stderr.flush()


def _readline() -> Any:
    """The module for editing lines, where this Python has one."""
    try:
        import readline
    except ImportError:
        return None
    readline.set_auto_history(False)  # answers to questions are not questions to the agent
    return readline


def login() -> str:
    """The name of who sits at the terminal."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "terminal"

"""`glassloop chat`: a conversation at the terminal."""

from __future__ import annotations

from glassloop.cli import options

EXAMPLES = """\b
Examples:
  glassloop chat examples/minimal.py:agent
  glassloop chat examples/mini.py:agent --trace --session monday
  printf 'hi\\nand in Shanghai?\\n' | glassloop chat examples/minimal.py:agent
"""


def chat(
    target: options.TargetArgument,
    trace: options.Trace = False,
    json: options.Json = False,
    session: options.Session = None,
    user: options.User = None,
    role: options.Roles = None,
    model: options.ModelName = None,
    store: options.Store = options.DEFAULT_STORE,
    max_steps: options.MaxSteps = None,
    max_tokens: options.MaxTokens = None,
    timeout: options.Timeout = None,
    max_cost: options.MaxCost = None,
    on_limit: options.OnLimitOption = None,
    yes: options.Yes = False,
    no_color: options.NoColor = False,
    debug: options.Debug = False,
) -> int:
    """Talk with an agent; everything that is said stays in one session.

    Calls that need a human's yes are asked for at the prompt. Ctrl-C cancels the run, not the program; Ctrl-C twice at
    the prompt, Ctrl-D or /exit leaves. /help lists the commands.
    """
    from glassloop.cli.output import json_alone
    from glassloop.cli.repl import Repl
    from glassloop.cli.running import Options
    from glassloop.cli.target import load_target
    from glassloop.core.ids import new_id

    with json_alone(json):
        found = load_target(target)
        limits = options.limits_of(
            found.agent.limits, steps=max_steps, tokens=max_tokens, cost=max_cost, seconds=timeout, on_limit=on_limit
        )
        given = Options(store, model, session or new_id("chat"), user, limits, yes, tuple(role or ()))
        return Repl(found, given, trace=trace, json=json, no_color=no_color, debug=debug).run()

"""`glassloop serve`: agents behind an HTTP server."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from glassloop.cli import options
from glassloop.cli.problems import OK, Problem, UsageProblem, say

if TYPE_CHECKING:
    from fastapi import FastAPI

    from glassloop.runnable import Runnable
    from glassloop.runtime import Runtime

    Extend = Callable[[FastAPI, Runtime], object]

EXAMPLES = """\b
Examples:
  glassloop serve examples/minimal.py --demo
  glassloop keys new --user ann && glassloop serve desk.py:runtime --keys glassloop-keys.jsonl
  GLASSLOOP_JWT_SECRET=... glassloop serve desk.py:app --host 0.0.0.0 --port 80 --store sqlite:////var/lib/desk.db
"""

_EXTRA = "`glassloop serve` needs the server extra: pip install 'glassloop[server]'."


def serve(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE:NAME",
            help="A Runtime, an Agent, a Service, or a function of (app, runtime) that adds routes.",
        ),
    ],
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0 for a free one.")] = 8000,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="Where everything is kept. Default: STORE, or a file here."),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option("--keys", metavar="FILE", envvar="GLASSLOOP_KEYS", help="API keys, made by `glassloop keys new`."),
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Accept the keys demo-alice, demo-bob and demo-sam (supervisor).")
    ] = False,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Accept everybody on this machine.")] = False,
    max_runs: Annotated[
        int, typer.Option("--max-runs", metavar="N", min=1, help="Runs that one user may have going at once.")
    ] = 250,
    debug: options.Debug = False,
) -> int:
    """Serve agents over HTTP: start runs, stream them, decide about their calls.

    Callers need a bearer token: an API key of the --keys file, or a JSON Web Token (GLASSLOOP_JWT_SECRET for HS256,
    GLASSLOOP_JWT_PUBLIC_KEY for RS256; GLASSLOOP_JWT_AUDIENCE and GLASSLOOP_JWT_ISSUER are checked where set). SIGTERM
    and Ctrl-C stop it; runs that are going then go on when it is started again.
    """
    try:
        from glassloop.server import create_app, make_auth
        from glassloop.server import serve as listen
    except ImportError as error:
        raise Problem(_EXTRA) from error
    _check_address(host, demo=demo, no_auth=no_auth)
    auth = make_auth(os.environ, keys=keys, demo=demo, open_to_all=no_auth)
    runtime, extend, module = _load(target, store)
    with _models(target, module, list(runtime.agents.values())):
        app = create_app(runtime, auth=auth, max_runs=max_runs)
        if extend is not None:
            extend(app, runtime)
        _warn(demo=demo, no_auth=no_auth)
        names = ", ".join(runtime.agents)
        listen(
            app,
            host=host,
            port=port,
            ready=lambda url: say(f"Serving {names} at {url} (store {runtime.store.places})."),
        )
    say("Stopped; runs that were going go on when the server is started again.")
    return OK


def _check_address(host: str, *, demo: bool, no_auth: bool) -> None:
    from glassloop.server.shell import is_loopback

    option = "--no-auth" if no_auth else "--demo"
    if (demo or no_auth) and not is_loopback(host):
        raise UsageProblem(f"{option} lets everybody in and works on 127.0.0.1 alone, not on {host}: use --keys FILE.")
    if demo and no_auth:
        raise UsageProblem("--demo and --no-auth say different things: use one of them.")


def _warn(*, demo: bool, no_auth: bool) -> None:
    if demo:
        say("*** DEMO: anybody on this machine can call this server with the keys demo-alice, demo-bob and demo-sam")
        say("*** (supervisor), which everybody knows. Never offer it to others; use --keys for that.")
    if no_auth:
        say("*** NO AUTHENTICATION: anybody on this machine can call this server, without a key.")


def _load(target: str, store: str | None) -> tuple[Runtime, Extend | None, ModuleType]:
    """The runtime that FILE:NAME means, what adds routes to the server, and the module."""
    from glassloop.cli.target import load_module
    from glassloop.runnable import Runnable
    from glassloop.runtime import Runtime
    from glassloop.server import Service

    module, place, name = load_module(target)
    found = _pick(module, place, name)
    extend: Extend | None = None
    if isinstance(found, Service):
        found, extend = found.runtime, found.extend
    elif callable(found) and not isinstance(found, Runnable | Runtime):
        found, extend = _agents_in(module, place), found
    if isinstance(found, Runtime):
        if store is not None:
            raise UsageProblem(f"{target} has a store of its own: leave --store away.")
        return found, extend, module
    return Runtime(found, store=store), extend, module


def _pick(module: ModuleType, place: str, name: str | None) -> Any:
    from glassloop.runnable import Runnable
    from glassloop.runtime import Runtime
    from glassloop.server import Service

    if name is not None:
        found: Any = module
        for part in name.split("."):
            if not hasattr(found, part):
                raise UsageProblem(f"{place} has no {name!r}.")
            found = getattr(found, part)
        if isinstance(found, Runnable | Runtime | Service) or callable(found):
            return found
        kind = type(found).__name__
        raise UsageProblem(f"{place}:{name} is of type {kind}: `serve` needs a Runtime, an Agent or a Service.")
    for kind in (Service, Runtime):
        for value in vars(module).values():
            if isinstance(value, kind):
                return value
    return _agents_in(module, place)


def _agents_in(module: ModuleType, place: str) -> list[Runnable]:
    from glassloop.runnable import Runnable

    agents = {id(value): value for value in vars(module).values() if isinstance(value, Runnable)}
    if not agents:
        raise UsageProblem(f"{place} has no Agent: define one there, e.g. agent = Agent(...).")
    return list(agents.values())


@contextmanager
def _models(target: str, module: ModuleType, agents: Sequence[Runnable]) -> Generator[None]:
    """See that every agent has a model while the block runs: its own, MODEL, or the stand-in of its module.

    Raises:
        ConfigurationError: no model is configured for one of them.
    """
    from glassloop.agent import Agent
    from glassloop.cli.running import chosen_model
    from glassloop.cli.target import Target
    from glassloop.models.registry import resolve_model
    from glassloop.runnable import everyone

    with ExitStack() as held:
        shared: Any = None
        for agent in [cast("Agent", one) for one in everyone(agents).values() if isinstance(one, Agent)]:
            if agent.model is not None or shared is None:
                chosen = held.enter_context(chosen_model(Target(target, agent, module), None))
                shared = chosen if agent.model is None else shared
            else:
                chosen = shared
            agent.model = agent.model if chosen is None else chosen
            if agent.model is None or isinstance(agent.model, str):
                resolve_model(agent.model)
        yield

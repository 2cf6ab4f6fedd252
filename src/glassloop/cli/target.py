"""FILE:AGENT on the command line: find the file or module, import it, pick the agent."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from glassloop.cli.problems import Problem, UsageProblem, one_line

if TYPE_CHECKING:
    from glassloop.models.model import Model
    from glassloop.runnable import Runnable


@dataclass(frozen=True)
class Target:
    """What FILE:AGENT names.

    Args:
        text: as the user wrote it.
        agent: the agent.
        module: where it stands.
    """

    text: str
    agent: Runnable
    module: ModuleType

    @property
    def model(self) -> str | Model | None:
        """The agent's own model; for a flow, that of one of its agents that has one."""
        from glassloop.agent import Agent
        from glassloop.runnable import everyone

        runs = self.agent
        if isinstance(runs, Agent):
            return runs.model
        models = [one.model for one in everyone([runs]).values() if isinstance(one, Agent)]
        return None if None in models or not models else models[0]

    @property
    def stand_in(self) -> Any:
        """The stand-in model that the module ships with, as `STAND_IN`; None if it has none."""
        return getattr(self.module, "STAND_IN", None)


def load_target(text: str) -> Target:
    """Import what `path/to/file.py:name` or `package.module:name` names; `:name` may be left out for the only agent,
    and for the one that is named `agent`.

    A file is imported with its folder, or the folder of its outermost package, first on `sys.path`; a module with the
    working directory there.

    Raises:
        UsageProblem: no such file, module or name, or it is not an agent.
        Problem: the code failed while it was imported.
    """
    module, place, name = load_module(text)
    return Target(text, _pick(module, place, name), module)


def load_module(text: str) -> tuple[ModuleType, str, str | None]:
    """Import the file or module of `FILE:NAME`; return it, FILE, and NAME if there is one. See `load_target`.

    Raises:
        UsageProblem: no such file or module.
        Problem: the code failed while it was imported.
    """
    place, name = _split(text)
    return _import_file(Path(place)) if _is_file(place) else _import_module(place), place, name


def _split(text: str) -> tuple[str, str | None]:
    place, colon, name = text.rpartition(":")
    if not colon or not place or Path(text).exists():
        return text, None
    if not name:
        return place, None
    if not all(part.isidentifier() for part in name.split(".")):
        if _is_file(text):
            return text, None
        raise UsageProblem(f"{name!r} cannot be the name of an agent: write FILE:AGENT, e.g. agent.py:agent.")
    return place, name


def _is_file(place: str) -> bool:
    return place.endswith(".py") or os.sep in place or "/" in place or Path(place).exists()


def _import_file(path: Path) -> ModuleType:
    if path.is_dir():
        path = path / "__init__.py"
    if not path.is_file():
        raise UsageProblem(f"There is no file {path}{_nearest(path)}")
    path = path.resolve()
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        root, parts = root.parent, [root.name, *parts]
    _put_first(root)
    if len(parts) > 1:
        dotted = ".".join(parts).removesuffix(".__init__")
        return _guarded(path, lambda: importlib.import_module(dotted))
    return _guarded(path, lambda: _run_file(path))


def _run_file(path: Path) -> ModuleType:
    """Import a file that is in no package under its own name, or another where that name is somebody else's.

    The name is the same in every process: approvals are bound to it, as a part of where a tool comes from.
    """
    name = path.stem
    known = getattr(sys.modules.get(name), "__file__", None)
    if name in sys.stdlib_module_names or (name in sys.modules and known != str(path)):
        name = f"_target_{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageProblem(f"{path} is not a Python file: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and type hints look their module up here
    spec.loader.exec_module(module)
    return module


def _import_module(dotted: str) -> ModuleType:
    if not all(part.isidentifier() for part in dotted.split(".")):
        raise UsageProblem(f"{dotted!r} is neither a file nor a module: write FILE:AGENT, e.g. agent.py:agent.")
    _put_first(Path.cwd())
    try:
        return _guarded(Path.cwd() / dotted, lambda: importlib.import_module(dotted))
    except Problem as problem:
        missing: Any = problem.__cause__
        if isinstance(missing, ModuleNotFoundError) and f"{dotted}.".startswith(f"{missing.name}."):
            raise UsageProblem(
                f"There is no module {dotted!r}, seen from {Path.cwd()}; for a file write its path, with .py."
            ) from None
        raise


def _guarded(path: Path, load: Any) -> ModuleType:
    """`load()`, its failure told in one sentence that points into the user's code."""
    try:
        return load()
    except Problem:
        raise
    except (Exception, SystemExit) as error:
        raise Problem(_import_failure(path, error)) from error


def _import_failure(path: Path, error: BaseException) -> str:
    file, line = _where(path, error)
    kind = type(error).__name__
    words = error.msg if isinstance(error, SyntaxError) else str(error)
    said = one_line(f"{kind}: {words}") if words else kind
    place = f" ({_shown(file)}, line {line})" if file else ""
    return f"Importing {_shown(path)} failed: {said}{place}."


def _where(path: Path, error: BaseException) -> tuple[Path | None, int]:
    """The last line of the user's own code that was being run."""
    if isinstance(error, SyntaxError) and error.filename:
        return Path(error.filename), error.lineno or 0
    folder = path.parent
    frames = traceback.extract_tb(error.__traceback__)
    mine = [frame for frame in frames if folder in Path(frame.filename).parents and not _installed(frame.filename)]
    return (Path(mine[-1].filename), mine[-1].lineno or 0) if mine else (None, 0)


def _installed(filename: str) -> bool:
    return "site-packages" in filename or filename.startswith((sys.base_prefix, str(Path(__file__).parents[1])))


def _shown(path: Path) -> str:
    """The path as the user would write it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _put_first(folder: Path) -> None:
    entry = str(folder)
    if entry in sys.path:
        sys.path.remove(entry)
    sys.path.insert(0, entry)


def _nearest(path: Path) -> str:
    if not path.parent.is_dir():
        return "."
    near = difflib.get_close_matches(path.stem, [item.stem for item in path.parent.glob("*.py")], n=1)
    return f"; did you mean {path.with_stem(near[0])}?" if near else "."


def _pick(module: ModuleType, place: str, name: str | None) -> Runnable:
    from glassloop.runnable import Runnable

    agents = {key: value for key, value in vars(module).items() if isinstance(value, Runnable)}
    if name is None:
        return _only(agents, place)
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise UsageProblem(f"{place} has no {name!r}; {_listed(agents)}.")
        value = getattr(value, part)
    if not isinstance(value, Runnable):
        raise UsageProblem(f"{place}:{name} is of type {type(value).__name__}, not an Agent; {_listed(agents)}.")
    return value


def _only(agents: dict[str, Runnable], place: str) -> Runnable:
    if "agent" in agents:
        return agents["agent"]
    different = list({id(agent): agent for agent in agents.values()}.values())
    if len(different) == 1:
        return different[0]
    if not different:
        raise UsageProblem(f"{place} has no Agent: define one there, e.g. agent = Agent(...).")
    raise UsageProblem(
        f"{place} has several agents ({', '.join(agents)}): say which, e.g. {place}:{next(iter(agents))}."
    )


def _listed(agents: dict[str, Runnable]) -> str:
    if not agents:
        return "it has no Agent at all"
    return f"its agents: {', '.join(agents)}"

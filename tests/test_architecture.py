"""The rules of the house that a program can check: sizes, the direction of imports, and what an import costs."""

from __future__ import annotations

import ast
import asyncio
import importlib.resources
import re
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import glassloop
from glassloop import Agent, ModelError
from glassloop.models.openai_chat import OpenAIChat
from glassloop.models.transport import Response

SOURCE = Path(glassloop.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
ROOT = SOURCE.parents[1]
HOUSE = sorted(path for place in ("src", "tests", "examples") for path in (ROOT / place).rglob("*.py"))

LEVELS = (
    {"core"},
    {"tools", "models"},
    {"memory", "middleware", "journal"},
    {"loop", "run", "results", "stream", "portal", "stores", "knowledge"},
    {"agent", "assembly", "driver", "holding", "options", "runnable", "tree"},
    {"runtime", "teams"},
    {"cli", "server", "__main__"},
)
"""Lowest first. A package imports its own level and those below; among packages of one level there are no cycles."""

LEAVES = {"testing", "observe"}
"""They may look at everything below the faces, and nothing below the faces looks at them."""

LOOP_IS_BLIND_TO = {
    *("anthropic", "openai", "gemini", "deepseek", "aiohttp", "http", "httpx", "sse"),
    *("sqlite", "sqlalchemy", "postgres", "redis", "stores"),
    *("fastapi", "starlette", "uvicorn", "typer", "rich", "cli", "console"),
}


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}


def statements(node: ast.AST, *, functions: bool) -> Iterator[ast.stmt]:
    """All statements of `node` that run, those inside functions too if wanted; not those for the type checker."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            yield from statements(ast.Module(child.orelse, []), functions=functions)
        elif functions or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            if isinstance(child, ast.stmt):
                yield child
            yield from statements(child, functions=functions)


def modules_named(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=module, names=names, level=0) if module is not None:
            for alias in names:
                submodule = f"{module}.{alias.name}"
                yield submodule if submodule in MODULES else module
        case ast.ImportFrom():
            raise AssertionError(f"relative import: {ast.unparse(node)}")
        case _:
            return


@cache
def imports(module: str, *, functions: bool) -> frozenset[str]:
    """What `module` imports: when it is loaded, and with `functions` also later."""
    tree = ast.parse(MODULES[module].read_text("utf-8"))
    found = {name for node in statements(tree, functions=functions) for name in modules_named(node)}
    return frozenset(found - {module})


def package_of(module: str) -> str:
    """The part of Glassloop that a module belongs to: `core`, `loop`, ..., or `` for the public names."""
    return module.split(".")[1] if "." in module else ""


def package_graph() -> dict[str, set[str]]:
    graph: dict[str, set[str]] = {}
    for module in MODULES:
        targets = {package_of(name) for name in imports(module, functions=True) if name.split(".")[0] == "glassloop"}
        graph.setdefault(package_of(module), set()).update(targets)
    return {package: targets - {package} for package, targets in graph.items()}


def level(package: str) -> int:
    return next(number for number, packages in enumerate(LEVELS) if package in packages)


def cycle_in(graph: Mapping[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def in_fresh_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


# Sizes


def test_the_loop_can_be_read_in_five_minutes() -> None:
    assert len((SOURCE / "loop.py").read_text("utf-8").splitlines()) <= 200


def test_files_and_functions_are_short() -> None:
    too_long: dict[str, int] = {}
    for path in HOUSE:
        text, place = path.read_text("utf-8"), path.relative_to(ROOT)
        if (lines := len(text.splitlines())) > 600:
            too_long[str(place)] = lines
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > 60:
                    too_long[f"{place}:{node.lineno} {node.name}"] = lines
    assert too_long == {}


# Arrows


def test_every_package_has_a_level() -> None:
    assert {package_of(module) for module in MODULES} <= set().union({""}, LEAVES, *LEVELS)


def test_core_imports_nothing_of_ours() -> None:
    assert package_graph()["core"] == set()


def test_arrows_point_downwards() -> None:
    faces = {"", *LEVELS[-1]}
    upwards = {
        (package, target)
        for package, targets in package_graph().items()
        for target in targets
        if package not in faces | LEAVES and (target in faces | LEAVES or level(target) > level(package))
    }
    assert upwards == set()


def test_leaves_do_not_look_at_the_faces() -> None:
    graph = package_graph()
    assert {(leaf, face) for leaf in LEAVES for face in graph.get(leaf, set()) & LEVELS[-1]} == set()


def test_packages_form_no_cycle() -> None:
    assert cycle_in({package: targets - {""} for package, targets in package_graph().items() if package}) == []


def test_modules_form_no_cycle() -> None:
    graph = {module: set(imports(module, functions=False)) & MODULES.keys() for module in MODULES}
    assert cycle_in(graph) == []


def test_middlewares_do_not_know_each_other() -> None:
    package = "glassloop.middleware."
    middlewares = {m for m in MODULES if m.startswith(package)} - {
        package + part for part in ("stack", "call", "outcome")
    }
    assert {(m, other) for m in middlewares for other in imports(m, functions=True) & middlewares} == set()


def words_in(tree: ast.AST) -> Iterator[str]:
    """Every word of names, imports and texts; what docstrings say does not count."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.arg(arg=text):
                yield from re.findall("[a-z]+", text.lower())
            case ast.Constant(value=str() as text) if id(node) not in docstrings:
                yield from re.findall("[a-z]+", text.lower())
            case ast.Import() | ast.ImportFrom():
                yield from (word for name in modules_named(node) for word in re.findall("[a-z]+", name.lower()))
            case _:
                pass


def test_the_loop_names_no_provider_storage_http_or_ui() -> None:
    tree = ast.parse((SOURCE / "loop.py").read_text("utf-8"))
    assert LOOP_IS_BLIND_TO & set(words_in(tree)) == set()


# The public face


def test_public_names_are_sorted_and_importable() -> None:
    assert sorted(glassloop.__all__) == glassloop.__all__
    assert [name for name in glassloop.__all__ if not hasattr(glassloop, name)] == []


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Agnet"):
        _ = glassloop.Agnet  # pyright: ignore[reportAttributeAccessIssue]  # the misspelt name is the point


def test_types_are_shipped() -> None:
    assert importlib.resources.files("glassloop").joinpath("py.typed").is_file()


def test_the_bare_import_is_light() -> None:
    loaded = in_fresh_process("import sys, glassloop; print(*sys.modules)").split()
    heavy = {"sqlalchemy", "fastapi", "aiohttp", "pydantic", "typer", "rich", "openai", "anthropic", "genai_prices"}
    assert heavy & set(loaded) == set()
    assert {name for name in loaded if name.startswith("glassloop.")} == {"glassloop.core", "glassloop.core.lazy"}


def test_a_working_agent_stays_light() -> None:
    code = "import sys; from glassloop import Agent; import glassloop.models.openai_chat, glassloop.stores.sqlite.store"
    loaded = in_fresh_process(f"{code}; print(*sys.modules)").split()
    heavy = {"sqlalchemy", "docstring_parser", "json_repair", "jsonschema_rs", "genai_prices", "typer", "rich"}
    for_tools = {"pydantic.types", "pydantic.fields", "glassloop.tools.schema", "glassloop.tools.raw"}
    assert (heavy | for_tools) & set(loaded) == set()
    assert len({name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names}) <= 190


def test_only_postgresql_needs_its_packages() -> None:
    code = """
import sys
sys.modules.update(dict.fromkeys(("sqlalchemy", "asyncpg"), None))
from glassloop.stores import open_store
import glassloop.knowledge.knowledge, glassloop.runtime, glassloop.server.app, glassloop.cli.main
open_store("sqlite:///store.db")
try:
    open_store("postgresql://localhost/db")
except Exception as error:
    print(error)
"""
    assert "pip install 'glassloop[postgres]'" in in_fresh_process(code)


def test_every_file_says_what_it_is() -> None:
    texts = {path.relative_to(ROOT): path.read_text("utf-8") for path in FILES}
    assert [
        str(place) for place, text in texts.items() if text.strip() and not ast.get_docstring(ast.parse(text))
    ] == []


async def test_few_frames_and_no_task_lie_between_a_caller_and_the_request() -> None:
    seen: list[tuple[list[str], bool]] = []
    mine = asyncio.current_task()

    class Looking:
        async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
            ours = [frame.name for frame in traceback.extract_stack() if Path(frame.filename).is_relative_to(SOURCE)]
            seen.append((ours, asyncio.current_task() is mine))
            raise ModelError("looked", kind="invalid_request")

    with pytest.raises(ModelError, match="looked"):
        await Agent(OpenAIChat("m", base_url="https://one.test", transport=Looking())).run("hi")
    [(frames, same_task)] = seen
    assert (len(frames) <= 8, same_task) == (True, True), frames


# The rules themselves can be broken


def test_imports_are_found_wherever_they_run() -> None:
    sample = ast.parse(
        "if TYPE_CHECKING:\n import types_only\nelse:\n import otherwise\n"
        "try:\n import tried\nexcept ImportError:\n import instead\n"
        "class C:\n import inside\n def f(self):\n  import later\n"
    )
    now = {name for node in statements(sample, functions=False) for name in modules_named(node)}
    ever = {name for node in statements(sample, functions=True) for name in modules_named(node)}
    assert now == {"otherwise", "tried", "instead", "inside"}
    assert ever == now | {"later"}


def test_a_cycle_is_found() -> None:
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    assert cycle_in({"a": {"b"}, "b": {"c"}}) == []


def test_a_forbidden_word_is_found_and_docstrings_may_say_it() -> None:
    sample = ast.parse('"""Names no sqlite."""\nfrom glassloop.stores import open_store\nx = kind == "openai:gpt"')
    assert LOOP_IS_BLIND_TO & set(words_in(sample)) == {"stores", "openai"}

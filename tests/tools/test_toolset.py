from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from glassloop.core.context import Identity, RunContext
from glassloop.core.errors import ToolDefinitionError
from glassloop.core.names import wire_name
from glassloop.tools.tool import Tool, as_tool, tool
from glassloop.tools.toolset import (
    DynamicToolset,
    FilteredToolset,
    FunctionToolset,
    PrefixedToolset,
    RenamedToolset,
    ToolIndex,
    Toolset,
    ToolSources,
    index_tools,
    resolve_tools,
    unknown_tool_message,
)

CONTEXT: RunContext[Any] = RunContext(None)


def add(a: int, b: int) -> int:
    return a + b


def search_hotels(city: str) -> str:
    return city


def delete_row(row_id: int) -> str:
    return f"{row_id}"


def named(*names: str) -> ToolIndex:
    return index_tools([tool(lambda: None, name=name) for name in names])


def other_delete_row() -> Callable[..., Any]:
    def delete_row() -> None: ...

    return delete_row


# The index


def test_order_and_specs() -> None:
    index = index_tools([as_tool(search_hotels), as_tool(add)])
    assert [spec.name for spec in index.specs] == ["search_hotels", "add"]
    assert index.find("add") is index.by_name["add"]
    assert len(index) == 2


@pytest.mark.parametrize(
    "written",
    [
        "add",
        "add\n\n",
        "  add",
        "add<|channel|>commentary",
        "add <|end|>",
        "functions.add",
        'add" parameter="a" string="true',
        "add</function>",
        "add<｜tool▁sep｜>",
        '"add"',
        "`add`",
    ],
)
def test_a_name_is_found_as_the_model_wrote_it(written: str) -> None:
    """Public, of the markup after it: NousResearch/hermes-agent#41725."""
    index = named("add", "functionshell", "functions_add")
    assert index.canonical(written) == "add"
    found = index.find(written)
    assert found is not None
    assert found.name == "add"


def test_nothing_is_guessed_about_other_names() -> None:
    index = named("add", "functionshell", "hell")
    assert index.find("functionshell") is index.by_name["functionshell"]
    assert index.find("ADD") is None
    assert index.find("ad") is None
    assert index.find("") is None
    assert index.canonical("sum<|x|>") == "sum"
    assert index.canonical('sum" parameter="a') == 'sum" parameter="a'


def test_wire_names_are_mapped_back() -> None:
    names = ["docs.open", "docs/open", "docs_open", "查询天气", "x" * 90, "x" * 89 + "y"]
    index = named(*names)
    sent = [wire_name(name) for name in names]
    assert len(set(sent)) == len(names)
    assert [index.canonical(name) for name in sent] == names


def test_a_legal_name_that_is_another_tools_wire_name_is_a_conflict() -> None:
    with pytest.raises(ToolDefinitionError, match="on the wire"):
        named("docs.open", wire_name("docs.open"))


def test_two_tools_of_one_name_are_an_error_that_names_both() -> None:
    other = other_delete_row()
    with pytest.raises(ToolDefinitionError) as caught:
        ToolSources([tool(delete_row, approval=True), other])
    assert "test_toolset:delete_row" in str(caught.value)
    assert "other_delete_row.<locals>.delete_row" in str(caught.value)


def test_the_same_function_twice_is_harmless_unless_its_settings_differ() -> None:
    assert len(index_tools([as_tool(add), as_tool(add), as_tool(add)])) == 1
    with pytest.raises(ToolDefinitionError, match="different settings"):
        index_tools([as_tool(delete_row), tool(delete_row, approval=True)])


def test_a_method_without_its_object_is_refused() -> None:
    class Desk:
        @tool
        def look_up(self) -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"object\.look_up"):
        ToolSources([Desk.look_up])
    assert ToolSources([Desk().look_up]).is_static


# Unknown names


def test_an_unknown_tool_is_told_what_exists_the_closest_first() -> None:
    index = named("add", "book", "search_hotels")
    assert unknown_tool_message("search_hotels_v2", index) == (
        "There is no tool 'search_hotels_v2'. Closest: search_hotels. Tools that exist: add, book, search_hotels."
    )
    assert index.closest("hotels_lookup") == ["search_hotels"]
    assert index.closest("Search-Hotels")[0] == "search_hotels"
    assert "Closest" not in unknown_tool_message("zzzz", index)


def test_the_message_stays_short_and_carries_no_template_token() -> None:
    index = named(*(f"tool_number_{number}" for number in range(500)))
    text = unknown_tool_message("x" * 10_000 + "<|channel|>", index)
    assert len(text) < 1_500
    assert "and 470 more" in text
    assert "<|" not in text
    assert "no tools" in unknown_tool_message("add", index_tools([]))


# Sources


async def test_static_tools_are_indexed_once() -> None:
    sources = ToolSources([add, tool(search_hotels), FunctionToolset(delete_row)])
    first = await sources.resolve(CONTEXT)
    assert await sources.resolve(CONTEXT) is first
    assert list(first.by_name) == ["add", "search_hotels", "delete_row"]
    assert not sources.is_static
    given = sources.given("add")
    assert given is not None, "whatever other tools a run has"
    assert given.name == "add"
    assert ToolSources([add]).is_static


async def test_tools_by_tenant_sync_and_async() -> None:
    def by_tenant(context: RunContext[Any]) -> list[Any]:
        return [add, search_hotels] if context.tenant == "a" else [add]

    async def later(context: RunContext[Any]) -> list[Any]:
        return by_tenant(context)

    a, b = RunContext(None, identity=Identity(tenant="a")), RunContext(None, identity=Identity(tenant="b"))
    for compute in (by_tenant, later):
        sources = ToolSources([DynamicToolset(compute)])
        assert list((await sources.resolve(a)).by_name) == ["add", "search_hotels"]
        assert list((await sources.resolve(b)).by_name) == ["add"]
        again = await sources.resolve(b)
        assert again is await sources.resolve(b)


async def test_a_dynamic_conflict_is_found_when_it_arises() -> None:
    sources = ToolSources([delete_row, DynamicToolset(lambda context: [other_delete_row()])])
    with pytest.raises(ToolDefinitionError, match="delete_row"):
        await sources.resolve(CONTEXT)


async def test_filtered_renamed_and_prefixed() -> None:
    inner = FunctionToolset(add, search_hotels)
    few = FilteredToolset(inner, lambda tool, context: tool.name != "add" or context.user == "root")
    assert list((await resolve_tools([few], CONTEXT)).by_name) == ["search_hotels"]
    root = RunContext(None, identity=Identity(user="root"))
    assert list((await resolve_tools([few], root)).by_name) == ["add", "search_hotels"]

    renamed = RenamedToolset(inner, {"add": "plus"})
    both = ToolSources([inner, PrefixedToolset(renamed, "m_")])
    index = await both.resolve(CONTEXT)
    assert list(index.by_name) == ["add", "search_hotels", "m_plus", "m_search_hotels"]
    assert await both.resolve(CONTEXT) is index
    plus = index.by_name["m_plus"]
    assert await plus.invoke(plus.validate('{"a": 1, "b": 2}').kwargs, CONTEXT) == 3


async def test_your_own_toolset() -> None:
    class Mine:
        async def tools(self, context: RunContext[Any], /) -> Sequence[Tool]:
            return [as_tool(add)]

    assert isinstance(Mine(), Toolset)
    assert list((await resolve_tools([Mine()], CONTEXT)).by_name) == ["add"]


def test_what_is_no_source() -> None:
    with pytest.raises(ToolDefinitionError, match="int is no tool"):
        ToolSources([5])  # pyright: ignore[reportArgumentType] - the very mistake

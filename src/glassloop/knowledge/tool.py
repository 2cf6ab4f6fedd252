"""`search_knowledge`: what a model asks, and reads, of knowledge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from glassloop.tools.tool import Tool, tool

if TYPE_CHECKING:
    from glassloop.knowledge.knowledge import Hit, Knowledge

_DESCRIPTION = (
    "Search the documents of this service. Returns passages, best first, each with its source and place: cite them. "
    "Where sources disagree, `conflicts` says so: tell the user both values and both sources. "
    "If nothing is found, try other words once, then say that the documents do not answer it."
)


def search_tool(knowledge: Knowledge, name: str, *, limit: int, description: str | None) -> Tool:
    """See `Knowledge.tool`."""

    async def search(
        query: Annotated[str, Field(description="Words that the answer would contain, or the question itself.")],
    ) -> str | dict[str, Any]:
        hits = await knowledge.search(query, limit)
        if not hits:
            return (
                f"No results: nothing found for {query!r} in the documents. The search itself worked; "
                "other words may find something."
            )
        return {"passages": [_shown(hit) for hit in hits]}

    return tool(search, name=name, description=description or _DESCRIPTION, effect="read", trusted_output=False)


def _shown(hit: Hit) -> dict[str, Any]:
    """A hit as the model reads it, without what is empty."""
    passage = hit.passage
    heading = " > ".join(passage.headings)
    place = {"title": passage.title, "heading": heading, "page": passage.page, "line": passage.line}
    conflicts = [
        {"here": each.value, "source": each.source, "says": each.other, "there": each.sentence}
        for each in hit.conflicts
    ]
    shown = {"source": passage.source, **place, "text": passage.text, "conflicts": conflicts}
    if passage.title in (passage.source, heading):
        del shown["title"]
    return {key: value for key, value in shown.items() if value}

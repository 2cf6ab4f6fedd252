from __future__ import annotations

import pytest

from glassloop.tools.docstrings import Documentation, read_docstring

GOOGLE_WITHOUT_SUMMARY = """
    Args:
        a: first: with colon
        b (int, optional): second
            continued line
    """
NUMPY = """Sum.

    Parameters
    ----------
    a : int
        first

    Other Parameters
    ----------------
    b, c : int
        second
    """
SPHINX = """Sum.

    :param a: first
    :param int b: second
    :returns: nothing
    """
EPYDOC = """Sum.

    @param a: first
    @param b: second
    @return: nothing
    """


def test_google_without_a_summary_keeps_its_entries() -> None:
    assert read_docstring(GOOGLE_WITHOUT_SUMMARY) == Documentation(
        "", {"a": "first: with colon", "b": "second continued line"}
    )


def test_numpy_with_other_parameters_and_two_names_in_one_entry() -> None:
    assert read_docstring(NUMPY) == Documentation("Sum.", {"a": "first", "b": "second", "c": "second"})


@pytest.mark.parametrize("docstring", [SPHINX, EPYDOC])
def test_field_styles(docstring: str) -> None:
    assert read_docstring(docstring) == Documentation("Sum.", {"a": "first", "b": "second"})


@pytest.mark.parametrize(
    "heading",
    ["Args", "Arguments", "Parameters", "Params", "Keyword Args", "Keyword Arguments", "Other Parameters", "参数"],
)
def test_every_heading_for_parameters(heading: str) -> None:
    read = read_docstring(f"Sum.\n\n    {heading}:\n        a: first\n\n    Returns:\n        It.\n")
    assert read == Documentation("Sum.", {"a": "first"})


def test_several_sections_of_parameters_are_joined() -> None:
    read = read_docstring("Sum.\n\nArgs:\n    a: first\n\nKeyword Args:\n    b: second\n")
    assert read.parameters == {"a": "first", "b": "second"}


def test_results_and_exceptions_are_no_description_and_examples_are() -> None:
    read = read_docstring(
        "Sum.\n\nMore.\n\nReturns:\n    A number.\n\nRaises:\n    ValueError: never.\n\nExample:\n    f(1)\n"
    )
    assert read.description == "Sum.\n\nMore.\n\nExample:\n    f(1)"


def test_stars_backticks_dashes_and_nested_types() -> None:
    read = read_docstring("F.\n\nArgs:\n    *parts: rest\n    `a` (dict[str, tuple(int)]): first\n    b - second\n")
    assert read.parameters == {"parts": "rest", "a": "first", "b": "second"}


def test_one_entry_without_a_description_does_not_lose_the_others() -> None:
    assert read_docstring("F.\n\nArgs:\n    a: first\n    b\n    c: third\n").parameters["c"] == "third"


def test_paragraphs_of_an_entry_are_kept_apart() -> None:
    assert read_docstring("F.\n\nArgs:\n    a: one\n        two\n\n        three\n").parameters == {
        "a": "one two\nthree"
    }


def test_full_width_colon() -> None:
    assert read_docstring("查询。\n\n参数：\n    a： 订单号：形如 A-1\n").parameters == {"a": "订单号：形如 A-1"}


@pytest.mark.parametrize("docstring", [None, "", "   \n  "])
def test_nothing_says_nothing(docstring: str | None) -> None:
    assert read_docstring(docstring) == Documentation()


def test_prose_with_colons_is_prose() -> None:
    text = "Compute (a: b) something: like this.\n\nNote: it is slow."
    assert read_docstring(text) == Documentation(text)


def test_types_of_several_words_before_a_name() -> None:
    """Parsers of docstrings expect one word there, and give up on all parameters."""
    read = read_docstring(
        """Count.

        :param dict[str, int] counts: by name,
            in order
        :param int | None most: at most

        :param \\*parts: the rest
        :type most: int
        :raises ValueError: too few

        It is slow.
        """
    )
    assert read.parameters == {"counts": "by name, in order", "most": "at most", "parts": "the rest"}
    assert read.description == "Count.\n\nIt is slow."


def test_full_width_parentheses() -> None:
    assert read_docstring("查。\n\nArgs：\n    city（str）：城市").parameters == {"city": "城市"}


@pytest.mark.parametrize("before", ["", "Do it.\n\n"])
def test_entries_that_are_not_indented(before: str) -> None:
    read = read_docstring(f"{before}Args:\na: first\nb (int): second\n\nNote: slow.")
    assert read == Documentation(f"{before}Note: slow.", {"a": "first", "b": "second"})


def test_notes_and_warnings_of_numpy_style_are_description() -> None:
    """pydantic/pydantic-ai#7953"""
    read = read_docstring(f"{NUMPY}\n    Notes\n    -----\n    Slow.\n\n    Warnings\n    --------\n    Costs money.\n")
    assert read.description == "Sum.\n\nSlow.\n\nCosts money."

"""`glassloop ingest` and `glassloop knowledge`, as a user types them."""

from __future__ import annotations

import re
import signal
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Cli, Inside

POLICY = "# Refund policy\n\nRefunds take 48 hours after we receive the goods.\n\n## 期限\n\n客户可在七天内退款。\n"
FAQ = "# FAQ\n\nRefunds take 24 hours after we receive the goods.\n"


@pytest.fixture
def docs(cli: Cli) -> Cli:
    """A folder `docs` with three files."""
    cli.write("docs/refund.md", POLICY)
    cli.write("docs/sub/faq.md", FAQ)
    cli.write("docs/prices.csv", "name,price\ntea,12\n")
    return cli


@pytest.mark.parametrize("command", ["ingest", "knowledge list", "knowledge search", "knowledge remove"])
def test_help_has_examples(inside: Inside, command: str) -> None:
    ended = inside(*command.split(), "--help")
    assert ended.code == 0
    assert ended.out.startswith(f"Usage: glassloop {command}")
    assert f"Examples:\n    glassloop {command}" in ended.out


def test_files_go_in_and_are_found(docs: Cli) -> None:
    ended = docs("ingest", "docs")
    assert ended.code == 0
    assert re.fullmatch(r"Files:    3 added\nPassages: 4 added\nTime:     \d+\.\d s\n", ended.out)
    assert ended.err == "Files: 1 of 3\nFiles: 2 of 3\nFiles: 3 of 3\n"
    ended = docs("knowledge", "search", "退款")
    assert ended.out == "1. docs/refund.md:7  Refund policy > 期限\n   客户可在七天内退款。\n"
    assert docs("knowledge", "search", "tea").out == "1. docs/prices.csv, row 2\n   name: tea\n   price: 12\n"


def test_sources_that_disagree_are_marked(docs: Cli, inside: Inside) -> None:
    inside("ingest", "docs")
    found = inside("knowledge", "search", "after we receive the goods", "--limit", "2")
    lines = found.out.splitlines()
    assert found.code == 0
    assert {line[3:] for line in (lines[0], lines[4])} == {"docs/refund.md:3  Refund policy", "docs/sub/faq.md:3  FAQ"}
    marks = [line for line in lines if line.startswith("   Conflict: ")]
    assert len(marks) == 2
    assert all("48 hours" in mark and "24 hours" in mark for mark in marks)


def test_the_second_time_nothing_changes_and_an_edit_changes_its_own(docs: Cli, inside: Inside) -> None:
    inside("ingest", "docs")
    again = inside("ingest", "docs")
    assert (again.code, again.out.splitlines()[:2]) == (
        0,
        ["Files:    0 added, 3 unchanged", "Passages: 0 added, 4 kept"],
    )
    docs.write("docs/refund.md", POLICY.replace("七天", "十天"))
    report = inside("ingest", "docs", "--json").json
    assert (report["changed"], report["unchanged"]) == (["docs/refund.md"], ["docs/prices.csv", "docs/sub/faq.md"])
    assert (report["passages_added"], report["passages_removed"], report["passages_kept"]) == (1, 1, 3)


def test_bad_files_have_a_line_each_and_an_exit_code(docs: Cli, inside: Inside) -> None:
    docs.write("docs/empty.md", "")
    docs.write("docs/broken.pdf", "no PDF")
    ended = docs("ingest", "docs")
    assert ended.code == 3
    assert [line for line in ended.err.splitlines() if not line.startswith("Files: ")] == [
        "Skipped: docs/broken.pdf is broken, or no PDF file: save it anew with what it was made with.",
        "Skipped: docs/empty.md is empty: write something into it, or leave it out.",
    ]
    assert ended.out.startswith("Files:    3 added, 2 skipped\n")
    ended = inside("ingest", "docs/empty.md", "gone.md", "--json")
    assert (ended.code, ended.json["exit_code"]) == (1, 1)
    assert ended.json["failed"][1] == {"source": "gone.md", "reason": "does not exist: check the path."}
    assert inside("ingest", "docs/sub", "gone.md").code == 3
    assert inside("ingest").code == 2


def test_what_has_vanished_is_told_and_pruned(docs: Cli, inside: Inside) -> None:
    inside("ingest", "docs")
    (docs.folder / "docs/prices.csv").unlink()
    ended = inside("ingest", "docs")
    assert (ended.code, ended.out.splitlines()[0]) == (0, "Files:    0 added, 2 unchanged")
    assert ended.err.endswith("--prune removes them:\n  docs/prices.csv\n")
    ended = inside("ingest", "docs", "--prune")
    assert ended.out.splitlines()[:2] == [
        "Files:    0 added, 2 unchanged, 1 pruned",
        "Passages: 0 added, 1 removed, 3 kept",
    ]
    assert inside("knowledge", "search", "tea").out == "Nothing found for 'tea' in collection 'default'.\n"


def test_a_list_names_sources_as_a_root_makes_them(docs: Cli, inside: Inside) -> None:
    assert inside("ingest", "docs", "--root", "docs", "--collection", "shop").code == 0
    lines = inside("knowledge", "list", "--collection", "shop").out.splitlines()
    assert lines[0].split() == ["SOURCE", "PASSAGES", "CHARACTERS", "ADDED", "TITLE"]
    assert [line.split()[0] for line in lines[1:]] == ["prices.csv", "refund.md", "sub/faq.md"]
    assert lines[2].endswith("Refund policy")
    listed = inside("knowledge", "list", "--collection", "shop", "--json").json
    assert [(each["source"], each["passages"]) for each in listed] == [
        ("prices.csv", 1),
        ("refund.md", 2),
        ("sub/faq.md", 1),
    ]
    assert inside("knowledge", "list").out == "No documents in collection 'default'. There are 'shop'.\n"


def test_nothing_is_said_plainly_and_makes_no_file(inside: Inside) -> None:
    assert inside("knowledge", "list").out == "No documents in collection 'default'.\n"
    ended = inside("knowledge", "search", "x")
    assert (ended.code, ended.out) == (0, "Nothing found for 'x' in collection 'default'.\n")
    assert inside("knowledge", "search", "x", "--json").json == []
    assert inside("knowledge", "remove", "x").code == 1
    assert not (inside.folder / "glassloop.db").exists()
    assert inside("knowledge", "search", " ").code == 2


def test_a_document_is_removed_by_its_name(docs: Cli, inside: Inside) -> None:
    inside("ingest", "docs")
    ended = inside("knowledge", "remove", "docs/faq.md")
    assert (ended.code, ended.out) == (1, "")
    assert "Did you mean 'docs/sub/faq.md'?" in ended.err
    assert inside("knowledge", "remove", "docs/refund.md").out == "Removed docs/refund.md (2 passages).\n"
    assert inside("knowledge", "remove", "docs/sub/faq.md", "--json").json["passages_removed"] == 1
    assert [each["source"] for each in inside("knowledge", "list", "--json").json] == ["docs/prices.csv"]


def test_what_was_found_as_json(docs: Cli, inside: Inside) -> None:
    inside("ingest", "docs")
    (hit,) = inside("knowledge", "search", "tea", "--json").json
    assert hit.pop("score") > 0
    assert hit == {
        "source": "docs/prices.csv",
        "title": "prices.csv",
        "position": 0,
        "text": "name: tea\nprice: 12",
        "headings": [],
        "page": None,
        "line": 2,
        "conflicts": [],
    }


def test_a_store_is_named_by_an_option_or_the_environment(docs: Cli, inside: Inside) -> None:
    assert inside("ingest", "docs", "--store", "sqlite:///other.db").code == 0
    assert len(inside("knowledge", "list", "--json", STORE="sqlite:///other.db").json) == 3
    ended = inside("ingest", "docs", "--store", "memory:")
    assert (ended.code, ended.out) == (1, "")
    assert "not kept in memory" in ended.err


def test_a_terminal_shows_a_bar_and_highlights(docs: Cli) -> None:
    terminal = docs.terminal("ingest", "docs", TERM="xterm")
    shown = terminal.expect("Time:")
    assert "3/3" in shown
    assert "Files: 3 of 3" not in shown
    assert terminal.code() == 0
    terminal = docs.terminal("knowledge", "search", "可退款 refunds", TERM="xterm")
    shown = terminal.expect("退款\x1b[0m。") + terminal.expect("goods.")
    assert "   客户可在七天内\x1b[1;32m退款\x1b[0m。\n" in shown
    assert "   \x1b[1;32mRefunds\x1b[0m take 48 hours after" in shown
    assert terminal.code() == 0


def test_two_processes_at_once_leave_what_one_would(docs: Cli) -> None:
    for number in range(40):
        docs.write(f"docs/{number}.md", f"# Title\n\nText {number}.\n\n## Same\n\nThe same text.\n")
    both = [docs.start("ingest", "docs") for _ in range(2)]
    assert [docs.finish(process).code for process in both] == [0, 0]
    again = docs("ingest", "docs", "--json").json
    assert (again["passages_added"], again["passages_removed"], again["passages_kept"]) == (0, 0, 84)
    assert sum(each["passages"] for each in docs("knowledge", "list", "--json").json) == 84


def test_ctrl_c_ends_it_and_the_next_time_goes_on(docs: Cli) -> None:
    assert docs("ingest", "docs").code == 0
    docs.write("docs/new.md", "A new text.")
    with closing(sqlite3.connect(docs.folder / "glassloop.db")) as database:
        database.execute("BEGIN IMMEDIATE")  # so that it waits
        process = docs.start("ingest", "docs")
        assert process.stderr is not None
        assert process.stderr.readline() == "Files: 1 of 4\n"
        process.send_signal(signal.SIGINT)
        ended = docs.finish(process)
    assert (ended.code, ended.out) == (130, "")
    assert ended.err.endswith("Stopped. The files that are in stay in; run it again for the others.\n")
    assert docs("ingest", "docs", "--json").json["added"] == ["docs/new.md"]


def test_without_the_extra_a_sentence_names_it(docs: Cli) -> None:
    docs.write("gone/semantic_text_splitter.py", "raise ImportError('not installed')\n")
    ended = docs("ingest", "docs", PYTHONPATH=str(docs.folder / "gone"))
    assert ended.code == 1
    assert ended.err == "Error: Knowledge needs the rag extra: pip install 'glassloop[rag]'.\n"

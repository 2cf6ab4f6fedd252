"""Which files of what is given are loaded, and how they are named."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from glassloop.core.errors import LoadError
from glassloop.knowledge.load import load
from glassloop.knowledge.load.walk import Found, find

NOBODY = 65534


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    for name in ("b.md", "a.md", "sub/c.md", "sub/deep/d.txt", ".hidden.md", ".git/config.md", "~$b.docx", "é.md"):
        path = tmp_path / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"Text of {name}.", "utf-8")
    return tmp_path / "docs"


@contextmanager
def nobody() -> Generator[Path]:
    """A folder, and no rights that its modes do not give."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        user = os.geteuid()
        os.seteuid(user or NOBODY)
        try:
            yield Path(folder)
        finally:
            os.seteuid(user)


def sources(found: Found) -> list[str]:
    return [file.source for file in found.files]


def problems(found: Found) -> dict[str, str]:
    return {problem.source: problem.reason for problem in found.problems}


def test_a_folder_is_walked_to_its_end_without_what_is_hidden(docs: Path) -> None:
    found = find([docs])
    assert sources(found) == ["docs/a.md", "docs/b.md", "docs/sub/c.md", "docs/sub/deep/d.txt", "docs/é.md"]
    assert [file.path.read_text("utf-8") for file in found.files[:2]] == ["Text of a.md.", "Text of b.md."]
    assert problems(found) == {}
    assert found.covers("docs/sub/old.md")
    assert not found.covers("other/a.md")


def test_names_are_the_same_wherever_one_stands(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(docs)
    assert sources(find(["."])) == sources(find(["../docs/"])) == sources(find([docs]))


def test_a_root_names_what_is_below_it(docs: Path, tmp_path: Path) -> None:
    assert sources(find([docs / "sub"], docs)) == ["sub/c.md", "sub/deep/d.txt"]
    whole = find([docs], docs)
    assert sources(whole)[0] == "a.md"
    assert whole.covers("anything.md")
    assert sources(find([docs / "sub/c.md"], docs)) == ["sub/c.md"]
    assert sources(find([docs / "sub/c.md"])) == ["c.md"]
    outside = find([tmp_path], docs)
    assert problems(outside) == {str(tmp_path): f"is not in the root {docs}: give another root."}


def test_a_file_that_is_given_twice_counts_once(docs: Path) -> None:
    assert sources(find([docs / "a.md", docs / "a.md", docs / ".." / "docs" / "a.md"])) == ["a.md"]


def test_two_files_of_one_name_are_not_mixed_up(docs: Path, tmp_path: Path) -> None:
    other = tmp_path / "a.md"
    other.write_text("Another.", "utf-8")
    found = find([docs / "a.md", other])
    assert [file.path for file in found.files] == [docs / "a.md"]
    assert problems(found) == {str(other): f"has the same name as {docs / 'a.md'}: give a root that is above both."}


def test_links_to_files_are_read_and_links_to_folders_are_named(docs: Path) -> None:
    (docs / "link.md").symlink_to("a.md")
    (docs / "loop").symlink_to(docs)
    found = find([docs])
    assert "docs/link.md" in sources(found)
    assert list(problems(found)) == ["docs/loop"]
    assert not found.covers("docs/loop/a.md")
    assert sources(find([docs / "loop"]))[0] == "loop/a.md"


def test_what_is_not_there_and_what_is_empty_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert problems(find([tmp_path / "gone", tmp_path / "gone.md", tmp_path / "empty"])) == {
        "gone": "does not exist: check the path.",
        "gone.md": "does not exist: check the path.",
        "empty": "holds no files: give another folder.",
    }


def test_names_that_are_no_text_become_text(docs: Path) -> None:
    Path(os.fsdecode(os.fsencode(docs) + b"/\xff.md")).write_text("Text.", "utf-8")
    (docs / "e\u0301clair.md").write_text("Text.", "utf-8")
    found = find([docs])
    assert {"docs/\ufffd.md", "docs/\u00e9clair.md"} <= set(sources(found))
    assert all(load(file.path, source=file.source).sections for file in found.files)


def test_what_may_not_be_read_is_named_and_has_not_vanished() -> None:
    with nobody() as folder:
        for name in ("open/a.md", "closed/b.md", "c.md"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("Text.", "utf-8")
        (folder / "c.md").chmod(0)
        (folder / "closed").chmod(0)
        try:
            found = find([folder], folder)
            with pytest.raises(LoadError, match=r"c\.md may not be read by this user"):
                load(folder / "c.md")
        finally:
            (folder / "closed").chmod(0o700)
    assert sources(found) == ["c.md", "open/a.md"]
    assert problems(found) == {"closed": "may not be read by this user: give read permission."}
    assert found.covers("open/x.md")
    assert not found.covers("closed/b.md")

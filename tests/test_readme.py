"""The README shows the loop as it is."""

from __future__ import annotations

from pathlib import Path


def test_the_readme_prints_the_whole_loop(root: Path) -> None:
    loop = (root / "src/glassloop/loop.py").read_text("utf-8").rstrip()
    readme = (root / "README.md").read_text("utf-8")
    assert f"```python\n{loop}\n```" in readme, "copy src/glassloop/loop.py into the README's section on the loop"

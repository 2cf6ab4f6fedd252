"""Packages whose public names are imported when they are first used."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import importlib, sys

for name in ("", ".knowledge", ".memory", ".server", ".testing"):
    package = importlib.import_module("glassloop" + name)
    print(name, set(package.__all__) - set(dir(package)), "Agent" in vars(package))
"""


def test_who_looks_around_finds_the_public_names_of_a_package_without_loading_them() -> None:
    ended = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    names = ("", ".knowledge", ".memory", ".server", ".testing")
    assert ended.stdout.splitlines() == [f"{name} set() False" for name in names]

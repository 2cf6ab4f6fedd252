"""One virtual environment per peer, so that no library sees another's dependencies."""

import hashlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BENCH = Path(__file__).parent
ROOT = BENCH.parent
HOME = BENCH / ".venvs"
NOT_COUNTED = ("pip", "setuptools", "_distutils_hack", "distutils-precedence.pth", "pkg_resources")


def python(environment: str) -> str:
    """The interpreter of one environment."""
    return str(HOME / environment / "bin" / "python")


def prepare(environments: Iterable[str]) -> dict[str, str]:
    """Makes what is missing or outdated; returns the environments that could not be made, with the reason."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        names = sorted(set(environments))
        reasons = pool.map(_prepare, names)
        return {name: reason for name, reason in zip(names, reasons, strict=True) if reason}


def _prepare(environment: str) -> str:
    requirements = BENCH / "requirements" / f"{environment}.txt"
    stamp = HOME / environment / "made-from"
    wanted = _fingerprint(requirements)
    if stamp.exists() and stamp.read_text() == wanted:
        return ""
    print(f"making the environment {environment}", flush=True)
    venv = [sys.executable, "-m", "venv", "--clear", str(HOME / environment)]
    install = [python(environment), "-m", "pip", "install", "--quiet", "--no-input", "-r", str(requirements)]
    for command in (venv, install):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            return (done.stderr or done.stdout).strip()[-500:]
    stamp.write_text(wanted)
    return ""


def _fingerprint(requirements: Path) -> str:
    """Changes when the environment must be made anew; for ours also when its dependencies change."""
    text = requirements.read_text() + sys.version
    if _is_ours(requirements):
        text += repr(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    return hashlib.sha256(text.encode()).hexdigest()


def _is_ours(requirements: Path) -> bool:
    """Whether the environment holds this checkout, installed in place."""
    return "-e ." in requirements.read_text().splitlines()


def packages(environment: str) -> dict[str, str]:
    """Name -> version of every installed distribution, without the installer's own."""
    found: dict[str, str] = {}
    for info in _site(environment).glob("*.dist-info"):
        name, _, version = info.name.removesuffix(".dist-info").rpartition("-")
        if name not in NOT_COUNTED:
            found[re.sub(r"[-_.]+", "-", name).lower()] = version
    return dict(sorted(found.items()))


def megabytes(environment: str) -> float:
    """Disk used by the installed packages, compiled files included; an editable source tree counts too."""
    places = [entry for entry in _site(environment).iterdir() if not _is_installer(entry.name)]
    if _is_ours(BENCH / "requirements" / f"{environment}.txt"):
        places.append(ROOT / "src")
    return sum(_disk_bytes(place) for place in places) / 2**20


def _is_installer(name: str) -> bool:
    return name in NOT_COUNTED or name.startswith(("pip-", "setuptools-"))


def _disk_bytes(place: Path) -> int:
    files = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
    return sum(path.stat().st_blocks * 512 for path in files)


def _site(environment: str) -> Path:
    return next((HOME / environment / "lib").glob("python3*")) / "site-packages"

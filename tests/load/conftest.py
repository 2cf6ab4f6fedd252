"""The load's own modules import each other by name, as in `python tests/load`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

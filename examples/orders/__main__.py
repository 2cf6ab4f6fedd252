"""The order desk on the command line: one question, or with `chat` a conversation."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from glassloop.cli.demo import demo
from glassloop.cli.main import main

if __name__ == "__main__":
    if sys.argv[1:2] == ["chat"]:
        sys.exit(main(["chat", f"{os.path.relpath(Path(__file__).parent)}:agent", *sys.argv[2:]]))
    sys.exit(demo(__file__, "Where is order A-1024?"))

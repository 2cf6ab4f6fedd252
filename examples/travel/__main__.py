"""The travel planner on the command line."""

from __future__ import annotations

import sys

from glassloop.cli.demo import demo

if __name__ == "__main__":
    sys.exit(demo(__file__, "I am in Shanghai, 4 days off in October, I like nature and quiet towns"))

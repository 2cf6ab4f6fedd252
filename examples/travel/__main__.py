"""The travel planner on the command line, alone or as a team."""

from __future__ import annotations

import sys

from glassloop.cli.demo import demo

QUESTION = "I am in Shanghai, 4 days off in October, I like nature and quiet towns"

if __name__ == "__main__":
    sys.exit(demo(__file__, QUESTION, others={"team": "three agents do it: a planner, a budget checker, a writer"}))

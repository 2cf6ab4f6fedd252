"""The kill -9 suite, for half a minute; `make kill KILLS=1000` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaign import Campaign


@pytest.mark.timeout(180)
def test_nothing_is_lost_or_done_twice_over_twenty_kills(tmp_path: Path) -> None:
    tally = Campaign(tmp_path, seed=7, kills=20, most=10).play()
    assert tally.found.faults == []
    assert tally.kills >= 20
    assert tally.found.started > 0
    assert tally.found.lost == 0
    assert sum(count.repeats for count in tally.found.counts.values()) == 0
    assert tally.found.cut == tally.found.surfaced
    assert tally.found.counts["same_database"].effects == tally.found.counts["same_database"].calls
    assert tally.found.counts["keyed"].effects == tally.found.counts["keyed"].calls
    assert tally.found.counts["below"].effects == tally.found.counts["below"].calls > 0
    assert tally.found.counts["handed"].effects == tally.found.counts["handed"].calls > 0

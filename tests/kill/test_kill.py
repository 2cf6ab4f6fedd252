"""The kill -9 suite, for half a minute; `make kill KILLS=1000` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaign import Campaign


@pytest.mark.timeout(360)
@pytest.mark.parametrize(("store", "kills"), [("sqlite", 20), ("postgresql", 10)])
def test_nothing_is_lost_or_done_twice_over_some_kills(
    store: str, kills: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server: str | None = request.getfixturevalue("postgres_url") if store == "postgresql" else None
    tally = Campaign(tmp_path, seed=7, kills=kills, most=kills // 2, server=server).play()
    assert tally.found.faults == []
    assert tally.kills >= kills
    assert tally.found.started > 0
    assert tally.found.lost == 0
    assert sum(count.repeats for count in tally.found.counts.values()) == 0
    assert tally.found.cut == tally.found.surfaced
    assert tally.found.counts["same_database"].effects == tally.found.counts["same_database"].calls
    assert tally.found.counts["keyed"].effects == tally.found.counts["keyed"].calls
    assert tally.found.counts["below"].effects == tally.found.counts["below"].calls > 0
    assert tally.found.counts["handed"].effects == tally.found.counts["handed"].calls > 0

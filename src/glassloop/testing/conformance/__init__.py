"""Test suites for whoever writes a store: subclass a suite in a test module and give it the fixture it asks for.

    class TestMyJournal(JournalConformance):
        @pytest.fixture
        def open_journal(self, tmp_path):
            return lambda: MyJournal(tmp_path / "file")

The tests are coroutines: run them with pytest-asyncio in its auto mode.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{suite}" for suite in ("journal", "sessions", "ledger", "facts")),
)

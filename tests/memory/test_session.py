"""Sessions in memory pass the suite of all session stores."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from glassloop.memory.session import MemorySessions, SessionStore
from glassloop.testing.conformance.sessions import SessionsConformance


class TestMemorySessions(SessionsConformance):
    @pytest.fixture
    def open_sessions(self) -> Callable[[], SessionStore]:
        sessions = MemorySessions()
        return lambda: sessions

from __future__ import annotations

from hypothesis import settings

settings.register_profile("glassloop", deadline=None)  # a busy machine is no failure
settings.load_profile("glassloop")

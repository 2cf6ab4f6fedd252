"""The HTTP server; needs `pip install 'glassloop[server]'`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glassloop.core.lazy import lazy

if TYPE_CHECKING:
    from glassloop.server.app import create_app as create_app
    from glassloop.server.auth import Auth as Auth
    from glassloop.server.auth import TokenRules as TokenRules
    from glassloop.server.auth import make_auth as make_auth
    from glassloop.server.desk import Caller as Caller
    from glassloop.server.desk import Desk as Desk
    from glassloop.server.desk import TheDesk as TheDesk
    from glassloop.server.problems import Refused as Refused
    from glassloop.server.scope import session_key as session_key
    from glassloop.server.scope import with_session as with_session
    from glassloop.server.service import Service as Service
    from glassloop.server.serving import serve as serve
    from glassloop.server.sse import EventStream as EventStream
    from glassloop.server.sse import frame as frame
    from glassloop.server.streams import run_frames as run_frames

_HOMES = {
    "Auth": "auth",
    "Caller": "desk",
    "Desk": "desk",
    "EventStream": "sse",
    "Refused": "problems",
    "Service": "service",
    "TheDesk": "desk",
    "TokenRules": "auth",
    "create_app": "app",
    "frame": "sse",
    "make_auth": "auth",
    "run_frames": "streams",
    "serve": "serving",
    "session_key": "scope",
    "with_session": "scope",
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]

__getattr__, __dir__ = lazy(__name__, _HOMES)

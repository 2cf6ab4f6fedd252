"""Whose runs, sessions and approvals a caller sees: their own, in their own tenant."""

from __future__ import annotations

from dataclasses import replace

from glassloop.core.context import Identity
from glassloop.journal.projection import RunRow

DEFAULT_TENANT = "default"
"""The tenant of a key or token that names none."""


def with_session(identity: Identity, name: str | None) -> Identity:
    """`identity` in the session that this user calls `name`; None for no session.

    In the store it is called `tenant/user/name`, so that two users with a session "s1" never share one.
    """
    if name is None:
        return replace(identity, session=None)
    return replace(identity, session=session_key(identity, name))


def session_key(identity: Identity, name: str) -> str:
    """How the store calls the session that this user calls `name`; `/` and `%` are escaped as in a URL."""
    return "/".join(map(_escaped, (identity.tenant or "", identity.user or "", name)))


def session_name(key: str | None) -> str | None:
    """How its user calls the session that the store calls `key`; another key is left as it is."""
    if key is None or key.count("/") != 2:
        return key
    return key.rpartition("/")[2].replace("%2F", "/").replace("%25", "%")


def owns(identity: Identity, row: RunRow) -> bool:
    """Whether the run is the caller's own."""
    return identity.user is not None and (row.user, row.tenant) == (identity.user, identity.tenant)


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace("/", "%2F")

"""What one run may be given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from glassloop.core.context import Identity
from glassloop.core.errors import ConfigurationError
from glassloop.core.events import ApprovalMode
from glassloop.core.limits import Limits
from glassloop.core.messages import Message
from glassloop.memory.session import WhenBusy
from glassloop.middleware.approval import Approver
from glassloop.models.model import Model
from glassloop.stores import Store


class RunOptions(TypedDict, total=False):
    """What one run may be given.

    Args:
        session: conversation that the run belongs to; its earlier runs come first.
        when_busy: `queue` behind another run of the session, or `refuse` with SessionBusy.
        user: on whose behalf; never taken from the model.
        identity: user, tenant, roles and session at once, instead of `user` and `session`.
        deps: your own objects for the tools, as `context.deps`; never stored.
        history: messages that come before, e.g. an earlier result's `messages`.
        limits: instead of the agent's.
        model: instead of the agent's.
        store: where the journal is: a Store or a URL; default the STORE variable, else in memory. With a URL, sessions
            are where the SESSIONS variable says, if it is set (see `open_store`).
        approve: asks a human about a held call; without it the call is held as `approvals` says.
        approvals: `park` the run (outcome `waiting`) or `defer` the call; default what the agent's layer says.
    """

    session: str | None
    when_busy: WhenBusy
    user: str | None
    identity: Identity | None
    deps: Any
    history: Sequence[Message] | None
    limits: Limits | None
    model: str | Model | None
    store: str | Store | None
    approve: Approver | None
    approvals: ApprovalMode | None


_TYPES: dict[str, type] = {"identity": Identity, "limits": Limits}


def check_options(options: RunOptions) -> None:
    """Refuse what would be passed over in silence, or fail where nobody sees why: Python checks no `**options`.

    Raises:
        ConfigurationError: no such option, or a value of another type.
    """
    for name, value in options.items():
        if name not in RunOptions.__optional_keys__:
            known = ", ".join(sorted(RunOptions.__optional_keys__))
            raise ConfigurationError(f"A run has no option {name!r}. There are: {known}.")
        if name in _TYPES and value is not None:
            check_type(f"{name}=", value, _TYPES[name], f"a glassloop.{_TYPES[name].__name__}")
        if name == "approve" and value is not None and not callable(value):
            raise ConfigurationError(f"approve= is of type {type(value).__name__}: give a function that decides.")


def check_type(what: str, value: object, kinds: type | tuple[type, ...], wanted: str) -> None:
    """Refuse a value that is none of these.

    Args:
        what: what it is given as, for the message.
        value: what is given.
        kinds: the types that will do.
        wanted: what to give instead, for the message.

    Raises:
        ConfigurationError: it is none of these.
    """
    if not isinstance(value, kinds):
        raise ConfigurationError(f"{what} is of type {type(value).__name__}: give {wanted}.")

"""What one run may be given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from glassloop.core.context import Identity
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
    history: Sequence[Message]
    limits: Limits | None
    model: str | Model | None
    store: str | Store | None
    approve: Approver | None
    approvals: ApprovalMode | None

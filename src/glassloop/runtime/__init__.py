"""The runtime: agents, a store and an engine that drives their runs."""

from __future__ import annotations

from glassloop.journal.projection import ApprovalRow as ApprovalRow
from glassloop.runtime.approvals import ApprovalProblem as ApprovalProblem
from glassloop.runtime.engine import Engine as Engine
from glassloop.runtime.runtime import Runtime as Runtime

__all__ = ["ApprovalProblem", "ApprovalRow", "Engine", "Runtime"]

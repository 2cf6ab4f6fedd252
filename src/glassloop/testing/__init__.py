"""Public test doubles: a model server, scripted models, and stand-ins for a demonstration without a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glassloop.core.lazy import lazy

if TYPE_CHECKING:
    from glassloop.models.scripted import SchemaModel as SchemaModel
    from glassloop.models.scripted import ScriptedModel as ScriptedModel
    from glassloop.models.scripted import call as call
    from glassloop.testing.answer import Answer as Answer
    from glassloop.testing.answer import Failure as Failure
    from glassloop.testing.answer import Reaction as Reaction
    from glassloop.testing.answer import ask as ask
    from glassloop.testing.answer import fail as fail
    from glassloop.testing.answer import say as say
    from glassloop.testing.conversation import Conversation as Conversation
    from glassloop.testing.conversation import OfferedTool as OfferedTool
    from glassloop.testing.conversation import ToolOutcome as ToolOutcome
    from glassloop.testing.server import Brain as Brain
    from glassloop.testing.server import ModelServer as ModelServer
    from glassloop.testing.server import Received as Received
    from glassloop.testing.stand_in import StandIn as StandIn

_HOMES = {
    "Answer": "testing.answer",
    "Brain": "testing.server",
    "Conversation": "testing.conversation",
    "Failure": "testing.answer",
    "ModelServer": "testing.server",
    "OfferedTool": "testing.conversation",
    "Reaction": "testing.answer",
    "Received": "testing.server",
    "SchemaModel": "models.scripted",
    "ScriptedModel": "models.scripted",
    "StandIn": "testing.stand_in",
    "ToolOutcome": "testing.conversation",
    "ask": "testing.answer",
    "call": "models.scripted",
    "fail": "testing.answer",
    "say": "testing.answer",
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]

__getattr__, __dir__ = lazy(__name__, _HOMES, root="glassloop")

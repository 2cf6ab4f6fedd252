"""Several models as one: the next is asked where one fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from functools import cached_property
from typing import Any, cast

from glassloop.core.errors import ConfigurationError, ModelError
from glassloop.models.model import FailedPart, Model, ModelPart, ModelRequest, TextPart, ThinkingPart
from glassloop.models.prices import ALTERNATIVES
from glassloop.models.registry import resolve_model

_ELSEWHERE = frozenset({"auth", "payment", "not_found"})


class Fallback:
    """A model that asks others in turn until one answers.

    The next model is asked where one is overloaded, cannot be reached, takes too long or answers nonsense, and also
    where it refuses the key, wants payment or does not exist, for all that says nothing about the next. It is not asked
    where the request itself is refused or too long, and never once something of a reply has been shown. One round over
    all of them counts as one attempt; the error of a round that failed says what each model said, and the round is
    worth another where one of them is. Who answered is in the reply's `provider` and `model`; each that failed before
    it is an event.

    Args:
        models: at least two, in order of preference; names are resolved at the first request.
    """

    def __init__(self, *models: str | Model) -> None:
        if len(models) < 2:
            raise ConfigurationError("Fallback needs at least two models.")
        self._given = models

    def __repr__(self) -> str:
        return f"Fallback({self.name!r})"

    @property
    def name(self) -> str:
        """The names of all, in order."""
        return ALTERNATIVES.join(model if isinstance(model, str) else model.name for model in self._given)

    @cached_property
    def models(self) -> tuple[Model, ...]:
        """The models.

        Raises:
            ConfigurationError: a name cannot be resolved.
        """
        return tuple(map(resolve_model, self._given))

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelPart]:
        """Ask once around.

        Raises:
            ModelError: all failed, or one whose failure is no reason to ask the next.
        """
        failures: list[FailedPart] = []
        for left, model in zip(range(len(self.models) - 1, -1, -1), self.models, strict=True):
            shown = False
            try:
                async with aclosing(cast("Any", model.stream(request))) as parts:
                    async for part in parts:
                        shown = shown or isinstance(part, TextPart | ThinkingPart)
                        yield part
                return
            except ModelError as error:
                failures.append(FailedPart(model.name, error))
                if shown or not left or not (error.retryable or error.kind in _ELSEWHERE):
                    raise _together(failures) from error
            yield failures[-1]


def _together(failures: Sequence[FailedPart]) -> ModelError:
    """What a round came to: of the kind of a failure that may pass, if there is one, else of the last."""
    if len(failures) == 1:
        return failures[0].error
    passing = [failure.error for failure in failures if failure.error.retryable]
    decisive = passing[0] if passing else failures[-1].error
    waits = [error.retry_after or 0.0 for error in passing]
    return ModelError(
        "No model answered. " + " ".join(f"{failure.model}: {failure.error}" for failure in failures),
        kind=decisive.kind,
        status=decisive.status,
        retry_after=min(waits, default=None),
        partial=failures[-1].error.partial,
    )

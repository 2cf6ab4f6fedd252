"""Several rankings of the same things made one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)

_K = 60


def fused(*rankings: Iterable[T]) -> dict[T, float]:
    """Reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009): what several rankings put high comes first.

    Scores of different kinds cannot be added; ranks can: each place counts 1 / (60 + rank).

    Returns:
        The score of each, the best first; equals keep the order in which they first appear.
    """
    scores: dict[T, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, 1):
            scores[item] = scores.get(item, 0.0) + 1 / (_K + rank)
    return dict(sorted(scores.items(), key=lambda each: -each[1]))

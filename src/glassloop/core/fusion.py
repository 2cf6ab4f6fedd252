"""Several rankings of the same things made one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)

_K = 60


def fused(*rankings: Sequence[T]) -> list[T]:
    """Reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009): what several rankings put high comes first.

    Scores of different kinds cannot be added; ranks can: each place counts 1 / (60 + rank). Equals keep the order in
    which they first appear.
    """
    scores: dict[T, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, 1):
            scores[item] = scores.get(item, 0.0) + 1 / (_K + rank)
    return sorted(scores, key=lambda item: -scores[item])

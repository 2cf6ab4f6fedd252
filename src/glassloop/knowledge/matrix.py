"""Vectors as numpy has them: float32, of length 1, so that a product is a cosine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from glassloop.core.errors import ConfigurationError

try:
    import numpy as np
except ImportError as error:
    raise ConfigurationError(
        "Search by vectors needs numpy: install glassloop[rag], or unset EMBEDDING_MODEL to search by words alone."
    ) from error


def packed(vector: Sequence[float]) -> bytes:
    """A vector as it is kept: scaled to length 1, float32, little-endian. One without a direction stays as it is."""
    array = np.asarray(vector, dtype=np.float64)
    length = float(np.linalg.norm(array))
    return (array / length if length else array).astype("<f4").tobytes()


class Matrix:
    """The vectors of many passages.

    Args:
        rows: (id, packed vector); those whose length differs from the first's are left out.
    """

    def __init__(self, rows: Iterable[tuple[int, bytes]]) -> None:
        kept = list(rows)
        self._size = len(kept[0][1]) if kept else 0
        same = [row for row in kept if len(row[1]) == self._size]
        self._ids = [id_ for id_, _ in same]
        self._vectors = np.frombuffer(b"".join(vector for _, vector in same), dtype="<f4")
        self._vectors = self._vectors.reshape(len(same), -1) if same else self._vectors

    def nearest(self, vector: bytes, limit: int) -> list[tuple[int, float]]:
        """Ids and cosines of the vectors that point most in the same direction, best first; none beyond 90 degrees."""
        if not self._ids or len(vector) != self._size:
            return []
        cosines = self._vectors @ np.frombuffer(vector, dtype="<f4")
        best = np.argsort(-cosines, kind="stable")[:limit]
        return [(self._ids[row], float(cosines[row])) for row in best if cosines[row] > 0]

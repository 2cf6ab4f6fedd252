"""How well search finds what it should: ours against bm25s on texts that others wrote. `python -m bench.retrieval`."""

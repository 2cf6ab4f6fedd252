"""Ours against its peers: CPU per step, streaming, concurrency, weight.  `python -m bench` runs it all."""

"""One script per peer: what is done once per process, one run, one streamed run."""

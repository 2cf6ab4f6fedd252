"""Sessions and the ledger in Redis."""

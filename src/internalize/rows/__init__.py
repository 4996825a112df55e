"""SFT rows: one module a source, one audit that every row set must pass before anything trains on it."""

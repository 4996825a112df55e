"""Numeric gates: what would silently train the wrong thing is compared with something slower and surer first."""

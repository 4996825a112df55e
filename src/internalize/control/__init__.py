"""Steering a study that runs or has run: rerun a part, watch, cancel, unlock."""

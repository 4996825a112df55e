"""Evals: how a policy plays, what it knows, whether it uses what it states, and when to stop it."""

"""The closed vocabulary, the one conversation template and the one table of call words."""

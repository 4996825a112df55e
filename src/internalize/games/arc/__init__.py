"""Games of the ARC-AGI-3 toolkit behind the `Game` protocol; the toolkit and the games are the user's to install."""

"""Playing episodes: one `Harness` protocol, one `Episode` record."""

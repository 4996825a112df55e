"""Knowledge about a game: candidate atoms, the trials that verify or refute them, and the forms they are
recalled in."""

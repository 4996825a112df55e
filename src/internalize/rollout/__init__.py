"""From episodes to training sequences: plans, advantages, samples, dumps, and the harvest stage."""

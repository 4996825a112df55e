"""Arms: chains of steps, each an SFT batch, an RL rollout or both."""

"""internalize: train verified knowledge into the weights of a language model, then improve play with RL."""

__version__ = "0.1.0"

"""Token ids in, sampled token ids and log-probs out: the engine protocol and the local engine."""

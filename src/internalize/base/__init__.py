"""The base: a tiny Qwen3-type model meta-trained on other rule sets, so that it plays by rules in its
prompt."""

"""Checkpoints in Megatron's own torch_dist layout, their names and their reader without Megatron."""

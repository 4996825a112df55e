"""Training: Megatron-core model and trainer, losses, packing, optimizer reset. Import what you need by
module.
"""

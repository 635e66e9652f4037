"""The training loop, its objectives and evaluators, the run folder and distributed training."""

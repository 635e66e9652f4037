"""A model so small that every row is quick."""

from dataclasses import replace

from crate_mae.bench.contestants import CPU_SIZED

CONFIG = replace(
    CPU_SIZED, dim=24, depth=2, heads=3, decoder_dim=24, decoder_depth=2, decoder_heads=3, image_size=(16, 16)
)

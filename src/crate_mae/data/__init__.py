"""Images from folders, shards and well-known sets, in an order and with augmentations that a seed decides alone."""

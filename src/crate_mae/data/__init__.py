"""Images from folders, shards and well-known sets, in an order and with augmentations that only the seed decides."""

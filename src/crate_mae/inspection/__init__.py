"""``crate-mae inspect``: one pass over some images, every number and picture of ``analysis``, one report."""

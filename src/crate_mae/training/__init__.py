"""Training and probing."""

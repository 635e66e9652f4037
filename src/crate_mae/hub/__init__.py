"""Model cards, and what a run folder says for them."""

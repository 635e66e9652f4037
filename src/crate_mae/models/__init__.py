"""Models: one skeleton, several families of blocks."""

"""Completing a photograph: the region, the tiles that cover it, the model, and the file."""

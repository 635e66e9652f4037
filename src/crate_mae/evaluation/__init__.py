"""Measures of a model: linear probe, nearest neighbours, a classifier's accuracy; and its predictions."""

"""How good a model is: linear probe, nearest neighbours, a classifier's accuracy, predictions."""

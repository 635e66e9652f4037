"""A model's features of many images: extracted, kept in a table, as a scikit-learn step."""

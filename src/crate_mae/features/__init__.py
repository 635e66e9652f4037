"""A model's features of many images: extraction, a table in a file, a scikit-learn step."""

"""Reports for people: the demo's, and what each layer of a model does."""

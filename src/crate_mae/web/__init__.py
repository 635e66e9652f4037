"""The local page and its JSON API: ``crate-mae serve``."""

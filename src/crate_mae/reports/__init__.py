"""HTML reports: of the demo, and of ``crate-mae inspect``."""

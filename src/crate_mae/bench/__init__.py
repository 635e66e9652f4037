"""``crate-mae bench``: contestants take turns in one run on one machine, and ratios of their times are reported."""

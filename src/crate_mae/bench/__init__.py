"""How fast it is, in one command: contestants take turns in one run on one machine, and ratios are reported."""

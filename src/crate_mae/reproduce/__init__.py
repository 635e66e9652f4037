"""Every table and figure of the paper as one command."""

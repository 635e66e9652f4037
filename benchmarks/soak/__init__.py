"""``make soak``: break what can be broken, again and again, and count. docs/reliability.md has the table."""

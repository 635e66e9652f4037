"""``crate-mae bench --race``: each contestant is trained for the same seconds of processor time, then measured."""

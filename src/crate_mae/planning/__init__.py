"""What a run will need: parameters, FLOPs, memory, time."""

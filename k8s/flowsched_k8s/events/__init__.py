"""Events of a live cluster, written to a file and played."""

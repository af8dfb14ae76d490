"""From the cluster to the input of a round, its decision, and what holds of it."""

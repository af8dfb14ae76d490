"""What placements cost: forecasts of machines, goals, and the prices that the network's arcs carry."""

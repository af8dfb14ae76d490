"""Prices that are linear in what is placed: cost models, a service's headroom, and the compiled prices of a machine."""

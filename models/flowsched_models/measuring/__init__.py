"""Measuring one's own job on a plain Linux machine: which runs, how they are made, and the tables they end in."""

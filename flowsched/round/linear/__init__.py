"""Rounds at linear prices: classes of equal tasks on groups of equal machines through one min-cost flow network."""

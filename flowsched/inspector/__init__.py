"""Opened records: networks with prices, explanations, what-ifs, drawings."""

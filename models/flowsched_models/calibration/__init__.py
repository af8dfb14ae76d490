"""Fits profiles to measurements: run times of jobs, factors of machines, latencies of services."""

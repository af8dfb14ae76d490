"""Latency services: what they bear, cause, and keep off their nodes."""

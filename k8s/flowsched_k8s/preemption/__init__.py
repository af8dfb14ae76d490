"""Pods that make room for others of higher priority."""

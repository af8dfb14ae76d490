"""Volumes of pods: where they let pods run, and what the API server is told of them."""

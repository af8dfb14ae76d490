"""Bindings and other requests on their way to the API server."""

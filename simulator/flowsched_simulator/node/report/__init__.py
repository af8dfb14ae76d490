"""The report of controllers on one machine: one HTML document that needs nothing beside itself."""

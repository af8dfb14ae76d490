"""The report of a simulation: one HTML document that needs nothing beside itself."""

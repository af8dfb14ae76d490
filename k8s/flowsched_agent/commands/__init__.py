"""The command line of the node agent."""

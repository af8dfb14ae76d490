"""The node agent: the node controller on a real Linux machine."""

"""How tasks and services of a machine are steered: threads, signals, cgroups and scheduling classes."""

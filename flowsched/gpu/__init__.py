"""Tasks that share GPUs: shapes, machines as arrays, and what fits where."""

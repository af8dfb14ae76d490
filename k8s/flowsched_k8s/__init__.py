"""The Kubernetes side of flowsched: a secondary scheduler that binds real pods."""

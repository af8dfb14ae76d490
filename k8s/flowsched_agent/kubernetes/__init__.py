"""The agent as part of a cluster: which pods of its node it steers, and what it reports."""

"""Upstream's own table cases of scheduler plugins, run against kube-scheduler and flowsched on a real control plane."""

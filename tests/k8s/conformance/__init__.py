"""Cases of other projects' tests, run against kube-scheduler and flowsched on a real control plane: tables and scenarios."""

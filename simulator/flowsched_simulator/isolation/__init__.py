"""How steady and how late critical tasks run beside others: ``SCHED_DEADLINE`` against CPU shares, by models of both."""

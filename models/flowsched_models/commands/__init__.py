"""Sub-commands of ``flowsched`` that measure, fit and check profiles."""

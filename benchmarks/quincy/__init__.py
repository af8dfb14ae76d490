"""Data locality: a network that prefers machines and racks near a task's input.

After M. Isard, V. Prabhakaran, J. Currey, U. Wieder, K. Talwar, A. Goldberg, "Quincy: Fair Scheduling for Distributed
Computing Clusters", SOSP 2009.
"""

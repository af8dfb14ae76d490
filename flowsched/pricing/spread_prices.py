"""What tasks of one round cost each other because they should not be on one machine.

Each task is in some counts of what the round puts on each machine, and has a price for each of them. Two tasks of one count
on one machine cost the mean of their prices: what several cost together does not depend on the order in which they come.
"""

from __future__ import annotations

import numpy as np

from flowsched.cluster.compaction import View
from flowsched.pricing.arrival import Colocation
from flowsched.support.arrays import FloatArray, IntArray

SPREADING = "spreading"
"""The term of it."""


class SpreadPrices:
    """Spreading among the waiting tasks of a view."""

    def __init__(self, view: View) -> None:
        """Of its classes, some of which are in counts."""
        counts = sorted({number for c in view.classes for number, _ in c.task.counted})
        column = {number: k for k, number in enumerate(counts)}
        self.price: FloatArray = np.zeros((len(view.classes), len(counts)))
        """[classes, counts] what a task pays for each of a count that is there, if all have its price; 0: it is in none."""
        for c, cls in enumerate(view.classes):
            for number, each in cls.task.counted:
                self.price[c, column[number]] = each
        self._inside: FloatArray = (self.price > 0.0).astype(np.float64)
        self.waiting: FloatArray = self._evenly(view)
        """[classes] what a task pays beside as many others as each machine has if they share the machines evenly: what it
        pays while it waits, so that it waits for no emptier machine, and rather than where most others are."""

    def _evenly(self, view: View) -> FloatArray:
        tasks = np.array([len(c.members) for c in view.classes], np.float64)
        width = np.array([c.task.widths_milli[0] for c in view.classes], np.float64)
        free = np.repeat([g.free_milli for g in view.groups], [g.size for g in view.groups])
        narrowest = np.where(self._inside > 0.0, width[:, None], np.inf).min(axis=0, initial=np.inf)
        machines = (free[:, None] >= narrowest).sum(axis=0)
        share = np.ceil(tasks @ self._inside / np.maximum(1, machines))
        dearest = self.price.max(axis=0, initial=0.0)
        waiting: FloatArray = 0.5 * ((self.price + dearest * self._inside) @ share)
        return waiting

    def cost(self, colocation: Colocation) -> float:
        """What all of a co-location cost each other."""
        classes = [a.task_class for a in colocation]
        others = self._inside[classes].sum(axis=0) - 1.0
        return 0.5 * float(self.price[classes].sum(axis=0) @ np.maximum(0.0, others))

    def there(self, colocation: Colocation) -> tuple[FloatArray, FloatArray]:
        """[counts] how many of each count a co-location has, and the sum of their prices."""
        classes = [a.task_class for a in colocation]
        return self._inside[classes].sum(axis=0), self.price[classes].sum(axis=0)

    def marginal(self, classes: IntArray, number: FloatArray, prices: FloatArray) -> FloatArray:
        """[classes, machines] what one more task costs beside those of :meth:`there`, [machines, counts] each."""
        cost: FloatArray = 0.5 * (self.price[classes] @ number.T + self._inside[classes] @ prices.T)
        return cost

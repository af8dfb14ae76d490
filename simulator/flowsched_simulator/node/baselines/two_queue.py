"""The two-queue controller."""

from __future__ import annotations

from collections.abc import Sequence

from flowsched.node import Allocation, Node, Reading, ServiceGrant, TaskGrant, TaskReading
from flowsched_simulator.node.baselines.free_cores import without_services
from flowsched_simulator.node.baselines.queue_parts import CoreQueue, CoreSample, CpuQuota, Every, QueryRate, Stability

READ_S = 0.1
"""Seconds between two readings of the queries, and between two decisions."""
SAMPLE_S = 0.10035
"""... and between two of the cores: the reader waits 100 ms from one to the next, and its logs show ten in 1.0035 s."""
HIGHEST_QPS = 29_000.0
"""The service is left with one core below this rate only."""
HIGHEST_BUSY_PERCENT = 45.0
"""... and only while its cores together are less busy than this; 100 is one core."""
SHARED_CPUS = 0.6
"""Quota of a job of the low-priority queue, in CPUs ..."""
QUOTA_PERIOD_S = 1.0
"""... counted over this period."""
THROTTLED_CPUS = 0.001
"""What a job is left that has used up its quota: next to nothing, and it is not paused."""

PUBLISHED_HIGH = ("ferret", "dedup", "vips", "blackscholes", "canneal", "freqmine")
PUBLISHED_LOW = ("radix",)


class TwoQueue:
    """A high-priority queue with two cores of its own; a low-priority queue that shares one with the service.

    The design of group 048 of the course Cloud Computing Architecture (ETH Zurich, spring 2024), report of parts 3 and
    4, section 4.2 and Algorithm 1, with the logs of its runs. Every 75 ms the rates of the last 400 ms and of the last
    second are compared (:class:`Stability`); queries and cores are read, and decisions made, every 100 ms:

    - the load is stable, below 29K and the service's cores below 45 % busy, and the low queue has started a job:
      the service gets its first core only and the low queue's jobs run; otherwise they are paused and the service
      has all its cores;
    - both queues start a job on each core that has none;
    - a high queue with a core to spare and no job that waits takes the low queue's jobs over;
    - if a core is still to spare, the first job that runs there gets it too.

    Where report and logs leave a choice:

    - *The cores' 45 %* include the shared job, one reading of 100 ms stands for a second (:class:`CoreSample`).
      Memcached itself hardly counts there: its cores showed less than 4 % in the group's sweep up to 35K queries per
      second, and with any reading that leaves the job out it would not have been paused at loads of 5K to 24K.
    - *The rates* are too high by the way they are counted (:class:`QueryRate`).
    - *The quota* of 60 % counts over a second (:class:`CpuQuota`). So the job mostly runs at full speed for the second in
      which it is not paused, and its runs of 4 to 15 s in the logs are those in which the reading of the cores always fell
      into the rest of a second in which it was throttled. A job that moves to the high queue keeps its quota, as its
      container did.
    - *Moved jobs* are started at once, before a core is given away: by the algorithm's letter the first running job would
      take the cores that they were moved to.
    - *No answer of the service*, or a counter that starts anew: not stable, until a second was read.
    - *Several services*: each must be stable and below the limit; the low queue shares the last core of the first one.
    """

    period_s = 0.025
    """Its parts run every 75 and every 100 ms."""

    def __init__(self, node: Node, high: Sequence[str] = (), low: Sequence[str] = ()) -> None:
        """Jobs by name, or by profile, in the order in which they are started.

        Jobs in neither queue come last in ``high``. Without any name: the published queues.
        """
        if not high and not low:
            high, low = PUBLISHED_HIGH, PUBLISHED_LOW
        self._node = node
        self._order = {"high": tuple(high), "low": tuple(low)}
        self._known: set[str] = set()
        self._high = CoreQueue(())
        self._low = CoreQueue(())
        self._rates: dict[str, QueryRate] = {}
        self._stability: dict[str, Stability] = {}
        self._sample = CoreSample(())
        self._quotas: dict[str, CpuQuota] = {}
        self._reads = Every(READ_S)
        self._samples = Every(SAMPLE_S)
        self._decides = Every(READ_S)
        self._shares = False
        self._running: frozenset[str] = frozenset()
        """Jobs of the low queue that run."""
        self._begun = False
        self._last: Allocation | None = None

    def decide(self, reading: Reading) -> Allocation | None:
        """What runs from now on; None: as before."""
        if not self._begun:
            self._begin(reading)
        if self._samples.due(reading.t_s):
            self._sample.read(reading.t_s, reading.core_busy_s)
        if self._reads.due(reading.t_s):
            for service in reading.services:
                self._rates[service.service.name].read(reading.t_s, service.queries)
        for name, stability in self._stability.items():
            stability.look(reading.t_s, self._rates[name])
        if self._decides.due(reading.t_s):
            self._algorithm(reading)
        allocation = self._allocation(reading)
        if allocation == self._last:
            return None
        self._last = allocation
        return allocation

    def _begin(self, reading: Reading) -> None:
        """The services are known from the first reading on."""
        for service in reading.services:
            self._rates[service.service.name] = QueryRate()
            self._stability[service.service.name] = Stability()
        self._begun = True
        own = reading.services[0].service.cores if reading.services else ()
        self._sample = CoreSample(own)
        self._high = CoreQueue(
            without_services("two-queue", self._node.cores, [s.service.cores for s in reading.services])
        )
        self._low = CoreQueue(own[1:][-1:])

    def _algorithm(self, reading: Reading) -> None:
        """One pass through Algorithm 1."""
        self._queue_new(reading.tasks)
        before = frozenset(self._low.started)
        self._shares = bool(before) and self._calm()
        alive = {t.task.name for t in reading.tasks}
        self._low.remove_done(alive)
        self._high.remove_done(alive)
        self._low.fill()
        self._high.fill()
        if self._high.free and not self._high.waiting:
            while not self._low.empty:
                self._high.waiting.append(self._low.pop())
            self._high.fill()
        if self._high.free and self._high.started:
            self._high.upgrade(self._high.started[0])
        started = frozenset(self._low.started)
        self._running = started if self._shares else started - before

    def _calm(self) -> bool:
        busy = self._sample.percent
        return (
            busy is not None
            and busy < HIGHEST_BUSY_PERCENT
            and all(s.stable and s.qps < HIGHEST_QPS for s in self._stability.values())
        )

    def _queue_new(self, tasks: Sequence[TaskReading]) -> None:
        new = [t for t in tasks if t.task.name not in self._known]
        self._known.update(t.task.name for t in new)
        low = [t for t in new if _place(t, self._order["low"]) < len(self._order["low"])] if self._low.cores else []
        high = [t for t in new if t not in low]
        for queue, jobs, order in ((self._low, low, self._order["low"]), (self._high, high, self._order["high"])):
            places = {t.task.name: _place(t, order) for t in jobs}
            queue.waiting.extend(sorted(places, key=places.__getitem__))

    def _allocation(self, reading: Reading) -> Allocation:
        services = {}
        for k, service in enumerate(reading.services):
            cores = service.service.cores
            own = tuple(c for c in cores if c not in self._low.cores) if self._shares and k == 0 else cores
            services[service.service.name] = ServiceGrant(own, "the load is low and stable" if own != cores else "")
        tasks = {}
        for task in reading.tasks:
            name = task.task.name
            in_low = name in self._low.started
            cores = (self._low if in_low else self._high).cores_of(name)
            if not cores:
                continue
            if in_low and name not in self._quotas:
                self._quotas[name] = CpuQuota(SHARED_CPUS, QUOTA_PERIOD_S)
            run = not in_low or name in self._running
            quota = None
            if name in self._quotas and run and self._quotas[name].throttled(reading.t_s, task.cpu_s):
                quota = THROTTLED_CPUS
            reason = "" if run else "the service needs its cores: its load is high, or changes, or they are busy"
            tasks[name] = TaskGrant(run, cores, quota=quota, reason=reason)
        return Allocation(services, tasks)


def _place(task: TaskReading, order: tuple[str, ...]) -> int:
    """Where a job stands in a queue's order; behind all others if it is not named."""
    for name in (task.task.name, task.task.profile):
        if name in order:
            return order.index(name)
    return len(order)

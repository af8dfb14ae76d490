"""Random changes of a plan: another machine, core set, number of threads, weight, or start."""

from __future__ import annotations

from collections.abc import Callable

from flowsched.planner.draft import Draft
from flowsched.planner.evaluation import Seats
from flowsched.planner.problem import Problem, Seat
from flowsched.planner.random_buffer import RandomBuffer

Change = dict[int, Seats]
"""New seats of the machines that change."""

_CRITICAL = 0.5
"""Share of moves that take a job of the machine that ends last."""


class Neighbourhood:
    """Draws changes of a draft. A change may be impossible; its cost says so."""

    def __init__(self, problem: Problem, rng: RandomBuffer, among: tuple[int, ...] | None = None) -> None:
        """``among``: jobs of one machine that stay there."""
        self._problem = problem
        self._rng = rng
        self._free = problem.free if among is None else among
        self._stays = among is not None
        share = problem.rules.share_cores
        kinds: list[tuple[float, Callable[[Draft, int], Change | None]]] = []
        if among is None:
            kinds += [(3.0, self._elsewhere), (2.5, self._swap)]
        kinds += [
            (2.0, self._start if share else self._turn),
            (1.5 if share else 4.0, self._cores),
            (0.5, self._threads),
            (0.5 if share else 1.5, self._trade_cores),
        ]
        if not share:
            kinds += [(2.0, self._split), (4.0, self._columns), (3.0, self._join), (1.5, self._places)]
        if any(len(widths) > 1 for widths in problem.widths_of):
            kinds.append((3.0, self._width))
        total = sum(w for w, _ in kinds)
        level = 0.0
        self._kinds = []
        for w, kind in kinds:
            level += w / total
            self._kinds.append((level, kind))

    def draw(self, draft: Draft) -> Change | None:
        """A change, or None where the drawn kind has nothing to change."""
        rng = self._rng
        job = self._job(draft)
        rolled = rng.uniform()
        for level, kind in self._kinds:
            if rolled < level:
                return kind(draft, job)
        return None

    def _job(self, draft: Draft) -> int:
        rng = self._rng
        if not self._stays and rng.uniform() < _CRITICAL:
            parts = draft.parts
            worst = max(range(len(parts)), key=lambda s: (parts[s].violation, parts[s].last_s[0]))
            mine = [seat.job for seat in draft.seats[worst] if self._problem.jobs[seat.job].site is None]
            if mine:
                return rng.pick(mine)
        return rng.pick(self._free)

    def _elsewhere(self, draft: Draft, job: int) -> Change | None:
        """To another machine, or to another place on the same one."""
        sites = self._problem.sites_of[job]
        here = draft.where[job]
        others = [s for s in sites if s != here]
        if not others:
            return None
        site = self._rng.pick(others)
        left = without(draft.seats[here], job)
        seat = self._seated(job, site, draft.seat(job), draft.seats[site])
        return {here: left, site: self._inserted(draft.seats[site], seat)}

    def _swap(self, draft: Draft, job: int) -> Change | None:
        """Two jobs of two machines take each other's place, with its cores and its start."""
        other = self._rng.pick(self._free)
        a, b = draft.where[job], draft.where[other]
        if a == b or b not in self._problem.sites_of[job] or a not in self._problem.sites_of[other]:
            return None
        mine, theirs = draft.seat(job), draft.seat(other)
        return {
            a: replaced(draft.seats[a], job, self._taking(other, theirs, mine)),
            b: replaced(draft.seats[b], other, self._taking(job, mine, theirs)),
        }

    def _taking(self, job: int, had: Seat, place: Seat) -> Seat:
        """A job on another's place: its cores and start, with threads for them and its own width."""
        widths = self._problem.widths_of[job]
        width = place.width_milli if place.width_milli in widths and self._rng.uniform() < 0.5 else had.width_milli
        return Seat(job, self._problem.threads_of(job, len(place.cores)), place.cores, width, place.after)

    def _start(self, draft: Draft, job: int) -> Change | None:
        """At once, or after another task on the machine."""
        site = draft.where[job]
        seats = draft.seats[site]
        seat = draft.seat(job)
        choices = [-1, *(s.job for s in seats if s.job != job)]
        after = self._rng.pick(choices)
        if after == seat.after or (after >= 0 and waits_for(seats, after, job)):
            return None
        return {site: replaced(seats, job, seat._replace(after=after))}

    def _turn(self, draft: Draft, job: int) -> Change | None:
        """Earlier or later among those who share cores one after the other."""
        site = draft.where[job]
        seats = draft.seats[site]
        if len(seats) < 2:
            return None
        return {site: self._inserted(without(seats, job), draft.seat(job))}

    def _cores(self, draft: Draft, job: int) -> Change | None:
        """Another core set: one of the blocks, or a core or a pair of siblings more or less."""
        site = draft.where[job]
        seat = draft.seat(job)
        cores = self._other_cores(site, seat.cores, draft.seats[site])
        if not cores or cores == seat.cores:
            return None
        threads = self._problem.threads_of(job, len(cores))
        return {site: replaced(draft.seats[site], job, seat._replace(cores=cores, threads=threads))}

    def _other_cores(self, s: int, cores: tuple[int, ...], seats: Seats) -> tuple[int, ...]:
        site = self._problem.sites[s]
        rolled = self._rng.uniform()
        if rolled < 0.5:
            return self._rng.pick(site.core_sets)
        if rolled < 0.6 and seats:
            other = set(self._rng.pick(seats).cores)
            rest = tuple(c for c in site.cores if c not in other)
            return rest or cores
        unit: tuple[int, ...] = (self._rng.pick(site.cores),)
        if site.siblings and self._rng.uniform() < 0.5:
            unit = tuple(c for c in self._rng.pick(site.siblings) if c in site.cores)
        changed = set(cores) - set(unit) if set(unit) <= set(cores) else set(cores) | set(unit)
        return tuple(sorted(changed))

    def _trade_cores(self, draft: Draft, job: int) -> Change | None:
        """Some cores go from one job of a machine to another."""
        site = draft.where[job]
        others = [s for s in draft.seats[site] if s.job != job and self._problem.jobs[s.job].site is None]
        if not others:
            return None
        seat, other = draft.seat(job), self._rng.pick(others)
        if self._rng.uniform() < 0.3:
            mine, theirs = other.cores, seat.cores
        else:
            unit = {self._rng.pick(seat.cores)}
            for pair in self._problem.sites[site].siblings:
                if unit & set(pair) and self._rng.uniform() < 0.7:
                    unit = set(pair) & set(seat.cores)
                    break
            mine = tuple(c for c in seat.cores if c not in unit)
            theirs = tuple(sorted(set(other.cores) | unit))
        if not mine:
            return None
        seats = draft.seats[site]
        for j, old, cores in ((job, seat, mine), (other.job, other, theirs)):
            seats = replaced(seats, j, old._replace(cores=cores, threads=self._problem.threads_of(j, len(cores))))
        return {site: seats}

    def _split(self, draft: Draft, job: int) -> Change | None:
        """Two jobs of a machine divide its cores: one gets a block, the other the rest, and they are neighbours in turn."""
        site = draft.where[job]
        others = [s for s in draft.seats[site] if s.job != job and self._problem.jobs[s.job].site is None]
        if not others:
            return None
        mine = self._rng.pick(self._problem.sites[site].core_sets)
        rest = tuple(c for c in self._problem.sites[site].cores if c not in mine)
        if not rest:
            return None
        seat, other = draft.seat(job), self._rng.pick(others)
        new = seat._replace(cores=mine, threads=self._problem.threads_of(job, len(mine)))
        theirs = other._replace(cores=rest, threads=self._problem.threads_of(other.job, len(rest)))
        seats = replaced(without(draft.seats[site], job), other.job, theirs)
        if self._rng.uniform() < 0.5:
            return {site: self._inserted(seats, new)}
        at = next(i for i, s in enumerate(seats) if s.job == other.job)
        return {site: (*seats[:at], new, *seats[at:])}

    def _columns(self, draft: Draft, job: int) -> Change | None:
        """A core, or a pair of siblings, gets the queue of another one, or they swap queues: whole borders move."""
        s = draft.where[job]
        site, rng = self._problem.sites[s], self._rng
        units = site.units if rng.uniform() < 0.4 else tuple((c,) for c in site.cores)
        if len(units) < 2:
            return None
        one, other = rng.pick(units), rng.pick(units)
        if one == other or len(one) != len(other):
            return None
        swap = rng.uniform() < 0.25
        takes = dict(zip(one, other, strict=True))
        if swap:
            takes |= dict(zip(other, one, strict=True))
        changed = []
        for seat in draft.seats[s]:
            cores = tuple(c for c in site.cores if takes.get(c, c) in seat.cores)
            if cores == seat.cores or self._problem.jobs[seat.job].site is not None:
                changed.append(seat)
            elif cores:
                threads = self._problem.threads_of(seat.job, len(cores))
                changed.append(seat._replace(cores=cores, threads=threads))
            else:
                return None
        seats = tuple(changed)
        return None if seats == draft.seats[s] else {s: seats}

    def _join(self, draft: Draft, job: int) -> Change | None:
        """Into the queue of another job: its cores, right before or right after it."""
        other = self._rng.pick(self._free)
        s = draft.where[other]
        if other == job or s not in self._problem.sites_of[job]:
            return None
        here = draft.where[job]
        seat, place = draft.seat(job), draft.seat(other)
        joining = Seat(job, self._problem.threads_of(job, len(place.cores)), place.cores, seat.width_milli)
        seats = draft.seats[s]
        if s == here:
            seats = without(seats, job)
        at = next(i for i, k in enumerate(seats) if k.job == other) + (self._rng.uniform() < 0.5)
        seats = (*seats[:at], joining, *seats[at:])
        return {s: seats} if s == here else {here: without(draft.seats[here], job), s: seats}

    def _places(self, draft: Draft, job: int) -> Change | None:
        """Two jobs of one machine take each other's cores and turn."""
        s = draft.where[job]
        others = [k for k in draft.seats[s] if k.job != job and self._problem.jobs[k.job].site is None]
        if not others:
            return None
        mine, theirs = draft.seat(job), self._rng.pick(others)
        new = {job: self._taking(theirs.job, theirs, mine), theirs.job: self._taking(job, mine, theirs)}
        return {s: tuple(new.get(k.job, k) for k in draft.seats[s])}

    def _threads(self, draft: Draft, job: int) -> Change | None:
        site = draft.where[job]
        seat = draft.seat(job)
        threads = self._rng.pick(self._problem.thread_counts(job, len(self._problem.sites[site].cores)))
        if threads == seat.threads:
            return None
        return {site: replaced(draft.seats[site], job, seat._replace(threads=threads))}

    def _width(self, draft: Draft, job: int) -> Change | None:
        site = draft.where[job]
        seat = draft.seat(job)
        width = self._rng.pick(self._problem.widths_of[job])
        if width == seat.width_milli:
            return None
        seats = replaced(draft.seats[site], job, seat._replace(width_milli=width))
        if self._rng.uniform() < 0.3:
            # The service's cores are open to light tasks only: both change together.
            cores = self._other_cores(site, seat.cores, seats)
            if cores:
                threads = self._problem.threads_of(job, len(cores))
                seats = replaced(seats, job, Seat(job, threads, cores, width, seat.after))
        return {site: seats}

    def _seated(self, job: int, s: int, had: Seat, seats: Seats) -> Seat:
        """A place for a newcomer on a machine."""
        site, rng = self._problem.sites[s], self._rng
        cores = site.batch_cores or site.cores
        if rng.uniform() < (0.3 if self._problem.rules.share_cores else 0.8):
            cores = rng.pick(site.core_sets)
        after = -1
        if seats and rng.uniform() < 0.4:
            after = rng.pick(seats).job
        width = had.width_milli
        if len(self._problem.widths_of[job]) > 1 and rng.uniform() < 0.2:
            width = rng.pick(self._problem.widths_of[job])
        return Seat(job, self._problem.threads_of(job, len(cores)), cores, width, after)

    def _inserted(self, seats: Seats, seat: Seat) -> Seats:
        """At any place where the order means something, behind those who run; else at the end."""
        if self._problem.rules.share_cores:
            return (*seats, seat)
        running = sum(self._problem.jobs[s.job].site is not None for s in seats)
        at = running + self._rng.below(len(seats) - running + 1)
        return (*seats[:at], seat, *seats[at:])


def without(seats: Seats, job: int) -> Seats:
    """A machine's seats without a job; who waited for it waits for whom it waited for."""
    gone = next(seat for seat in seats if seat.job == job)
    return tuple(seat._replace(after=gone.after) if seat.after == job else seat for seat in seats if seat.job != job)


def replaced(seats: Seats, job: int, new: Seat) -> Seats:
    """A machine's seats with another one in a job's place; who waited for the job waits for the new one."""
    if new.job == job:
        return tuple(new if seat.job == job else seat for seat in seats)
    return tuple(
        new if seat.job == job else seat._replace(after=new.job) if seat.after == job else seat for seat in seats
    )


def waits_for(seats: Seats, job: int, other: int) -> bool:
    """Whether a job waits for another one, directly or through others."""
    after = {seat.job: seat.after for seat in seats}
    while job >= 0:
        if job == other:
            return True
        job = after[job]
    return False

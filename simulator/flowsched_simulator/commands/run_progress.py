"""What a long simulation is doing, on stderr."""

from __future__ import annotations

from flowsched.commands.status_line import StatusLine


class RunProgress(StatusLine):
    """A status line, and where stderr is no terminal a line for each policy when it is done.

    Lines tell simulated time since the first submission, as the makespan counts, and how long the policy has been computed.
    """

    _done = ""
    _policy = ""
    _runs = 0
    """Of the policy, that are done."""

    def show(self, policy: str, variant: str, t_s: float, ended: int, count: int) -> None:
        """Take note of how far a policy is: simulated seconds, jobs ended, and jobs in all."""
        if policy != self._policy:
            self._finish()
            self._policy, self._runs, self._began_s = policy, 0, self._clock()
        name = f"{policy} ({variant})" if variant else policy
        self._state = f"{name}: {ended} of {count} jobs done, simulated {t_s:.0f} s"
        if self._terminal:
            self._show()
        elif ended == count:
            self._runs += 1
            jobs = "1 job" if count == 1 else f"{count} jobs"
            done = f"simulated {t_s:.0f} s" if self._runs == 1 else f"{self._runs} runs"
            self._done, self._state = f"{policy}: {jobs} done, {done}", ""

    def _finish(self) -> None:
        if self._done and not self._terminal:
            self._write(self._with_wall_time(self._done) + "\n")
        self._done = self._state = ""

"""The rows of one run: how a finished run stands in the tables, and by what it is known there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flowsched_models.measuring.run_plan import PlannedRun, ResultTable
from flowsched_models.measuring.runner import Ended, Outcome
from flowsched_models.quantity import format_cores


@dataclass(frozen=True)
class Subject:
    """What is measured where: names that stand in every row."""

    job: str
    machine_type: str

    def key(self, planned: PlannedRun) -> dict[str, str]:
        """The values that tell a run from all others of its table."""
        setup, copy = planned.setup, planned.setup.copies[0]
        run = {"run": str(planned.number)}
        own = {"job": self.job, "machine_type": self.machine_type}
        if setup.table is ResultTable.THREADS:
            return {**own, "threads": str(copy.threads), "cores": str(len(copy.cores)), **run}
        if setup.table is ResultTable.INTERFERENCE:
            return {**own, "interference": setup.interference, **run}
        # Runs of other jobs and machines may stand in the same table.
        return {"schedule": f"{self.job}-{setup.sharing}-on-{self.machine_type}", **run}

    def rows(self, planned: PlannedRun, outcome: Outcome) -> list[dict[str, str]]:
        """The rows of a run in which every program succeeded; one per copy of the program."""
        key = self.key(planned)
        others = {"other_cpus": "" if outcome.other_cpus is None else f"{outcome.other_cpus:.2f}"}
        if planned.setup.table is not ResultTable.EXECUTIONS:
            return [{**key, **_took(outcome.programs[0]), **others}]
        first_s = min(e.start_s for e in outcome.programs)
        return [
            {
                **key,
                "job": self.job,
                "node": self.machine_type,
                "machine_type": self.machine_type,
                "cores": format_cores(copy.cores),
                "threads": str(copy.threads),
                "start_s": f"{ended.start_s - first_s:.3f}",
                "end_s": f"{ended.end_s - first_s:.3f}",
                "exit_code": str(ended.exit_code),
                **others,
            }
            for copy, ended in zip(planned.setup.copies, outcome.programs, strict=True)
        ]


def _took(ended: Ended) -> dict[str, str]:
    return {
        "real_s": f"{ended.real_s:.3f}",
        "user_s": f"{ended.user_s:.3f}",
        "sys_s": f"{ended.sys_s:.3f}",
        "max_rss_mib": f"{ended.max_rss_mib:.1f}",
    }


def replaced(command: Sequence[str], threads: int, copy: int) -> tuple[str, ...]:
    """A command with ``{threads}`` and ``{copy}`` filled in; other braces stay."""
    return tuple(word.replace("{threads}", str(threads)).replace("{copy}", str(copy)) for word in command)


def variables(threads: int, copy: int) -> Mapping[str, str]:
    """What a program may read instead: environment variables for its threads and the number of the copy."""
    return {"OMP_NUM_THREADS": str(threads), "FLOWSCHED_THREADS": str(threads), "FLOWSCHED_COPY": str(copy)}

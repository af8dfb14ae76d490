"""An experiment: scenarios x policies x settings x seeds, from a file or from objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowsched_models.document import InputError, Problem, name_help
from flowsched_models.output import default_folder
from flowsched_simulator.experiment.contender import BEST, Contender, contenders_of, read_by
from flowsched_simulator.experiment.metric import METRICS, default_metric
from flowsched_simulator.experiment.plan import Plan
from flowsched_simulator.experiment.scenario_case import ScenarioCase, make_case
from flowsched_simulator.policies import FLOW
from flowsched_simulator.scenario import Scenario
from flowsched_simulator.scenario_file import load_scenario
from flowsched_simulator.simulation import NO_LIMIT_S

if TYPE_CHECKING:
    from flowsched_simulator.experiment.results import Results


class Experiment:
    """Scenarios x policies x settings x seeds, ready to run.

    ``scenarios``: names, paths, :class:`Scenario` or :class:`ScenarioCase` objects. ``policies``: names or
    :class:`Contender` objects. ``settings``: a list of values for each setting; a policy takes part once for each
    combination of those that it reads. ``reference``: label of the policy that the others are compared with (``flow``, else
    the first); ``metric``: what decides. Raises :class:`InputError` with everything that is wrong.
    """

    def __init__(
        self,
        scenarios: Sequence[str | Path | Scenario | ScenarioCase],
        policies: Sequence[str | Contender],
        seeds: Iterable[int] = range(1, 11),
        *,
        name: str = "experiment",
        description: str = "",
        settings: Mapping[str, Sequence[object]] | None = None,
        variant: str = BEST,
        reference: str | None = None,
        metric: str | None = None,
        max_time_s: float = NO_LIMIT_S,
    ) -> None:
        problems: list[Problem] = []
        cases = _collected(problems, scenarios, _case)
        grid = {key: [setting_text(value) for value in values] for key, values in (settings or {}).items()}
        contenders = _collected(problems, policies, lambda policy: _contenders(policy, grid, variant))
        found = [each for group in contenders for each in group]
        problems += empty_problems(name, scenarios, policies)
        problems += plan_problems(name, cases, found, tuple(seeds), grid, reference, metric)
        InputError.raise_any(problems)
        self.plan = make_plan(name, cases, found, tuple(seeds), reference, metric, max_time_s, description)

    @classmethod
    def of(cls, plan: Plan) -> Experiment:
        """An experiment whose plan is made, such as one from a file."""
        made = cls.__new__(cls)
        made.plan = plan
        return made

    def __repr__(self) -> str:
        return f"<Experiment {self.plan.overview().words}>"

    def run(
        self,
        out: str | Path | None = None,
        *,
        jobs: int | None = None,
        backend: str = "local",
        address: str | None = None,
        until: float | None = None,
        most_seeds: int | None = None,
        report: Callable[[int, int, float | None], None] | None = None,
    ) -> Results:
        """Run what is not done yet, and return the results; the same experiment goes on in the same folder.

        ``out``: default ``out/NAME``. ``jobs``: processes, all cores unless given. ``backend``: ``local``, or ``dask`` with
        the ``address`` of its scheduler. ``until``: adds seeds until the 95 % interval of every paired difference is within
        so much of the reference's mean (0.02: 2 %), ``most_seeds`` at most (100 unless given). ``report`` is called with
        runs done, runs in all, and about how many seconds are left.
        """
        from flowsched_simulator.experiment.results import load_results
        from flowsched_simulator.experiment.sweep import Sweep, check_most_seeds

        check_most_seeds(self.plan, until, most_seeds)
        folder = Path(out) if out is not None else default_folder(self.plan.name, "experiment")
        sweep = Sweep(self.plan, folder, jobs=jobs, backend=backend, address=address, report=report)
        failures = sweep.run() if until is None else sweep.run_until(until, most_seeds)
        InputError.raise_any(Problem(" / ".join(map(str, f.key)), None, "", f.message) for f in failures)
        return load_results(folder)


def make_plan(
    name: str,
    cases: Sequence[ScenarioCase],
    contenders: Sequence[Contender],
    seeds: tuple[int, ...],
    reference: str | None,
    metric: str | None,
    max_time_s: float = NO_LIMIT_S,
    description: str = "",
) -> Plan:
    """A plan of parts that :func:`plan_problems` has nothing to say about."""
    labels = [each.label for each in contenders]
    reference = reference or (FLOW if FLOW in labels else labels[0])
    metric = metric or default_metric(cases[0].scenario)
    return Plan(name, tuple(cases), tuple(contenders), seeds, reference, metric, max_time_s, description)


def empty_problems(name: str, scenarios: Sequence[object], policies: Sequence[object]) -> list[Problem]:
    """Scenarios or policies of which none is given; ``key`` of each problem is the key of the file."""
    return [
        Problem(name, None, key, "must not be empty", f"name one {one} at least")
        for key, one, given in (("scenarios", "scenario", scenarios), ("policies", "policy", policies))
        if not given
    ]


def plan_problems(
    name: str,
    cases: Sequence[ScenarioCase],
    contenders: Sequence[Contender],
    seeds: Sequence[int],
    grid: Mapping[str, Sequence[str]],
    reference: str | None,
    metric: str | None,
) -> list[Problem]:
    """What does not fit together; ``key`` of each problem is the key of the file."""
    found = []

    def wrong(key: str, message: str, help: str = "") -> None:
        found.append(Problem(name, None, key, message, help))

    labels = [each.label for each in contenders]
    for key, names in (("scenarios", [case.name for case in cases]), ("policies", labels)):
        for twice in dict.fromkeys(each for each in names if names.count(each) > 1):
            wrong(key, f"the name '{twice}' stands twice", "give one of them another name")
    if len(set(seeds)) < len(seeds):
        wrong("seeds", "a seed stands twice")
    if not seeds:
        wrong("seeds", "must not be empty", "write 1..30")
    if any(seed < 0 for seed in seeds):
        wrong("seeds", "must not be negative")
    read = {key for policy in dict.fromkeys(each.policy for each in contenders) for key in read_by(policy)}
    for key in grid if contenders else ():
        if key not in read:
            wrong(f"settings.{key}", "no policy of this experiment reads this setting", name_help(key, sorted(read)))
    if reference is not None and labels and reference not in labels:
        wrong("reference", f"no policy of this experiment is called '{reference}'", name_help(reference, labels))
    if metric is not None and metric not in METRICS:
        wrong("metric", f"there is no metric '{metric}'", name_help(metric, METRICS))
    return found


def setting_text(value: object) -> str:
    """The value of a setting as ``--set`` takes it."""
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def _case(given: str | Path | Scenario | ScenarioCase) -> ScenarioCase:
    if isinstance(given, ScenarioCase):
        return given
    return make_case(given if isinstance(given, Scenario) else load_scenario(given))


def _contenders(given: str | Contender, grid: Mapping[str, Sequence[str]], variant: str) -> tuple[Contender, ...]:
    if isinstance(given, Contender):
        return contenders_of(given.label, given.policy, given.settings, grid, given.variant)
    return contenders_of(given, given, (), grid, variant)


def _collected(problems: list[Problem], given: Iterable[Any], make: Callable[[Any], Any]) -> list[Any]:
    """What is made of each; the problems of those that are wrong are collected."""
    made = []
    for each in given:
        try:
            made.append(make(each))
        except InputError as error:
            problems += error.problems
    return made

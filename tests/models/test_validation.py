"""Profiles scored against measured runs: known errors come out as they are."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result

from builders import CACHE, CATALOGUE, LARGE, SERIAL, SMALL
from flowsched_models.catalogue import Catalogue
from flowsched_models.commands.validate import validate as command
from flowsched_models.document import InputError
from flowsched_models.execution import Execution
from flowsched_models.measurements.measurements import (
    LatencyWindow,
    MeasuredExecution,
    Measurements,
    Placed,
    Run,
    Where,
)
from flowsched_models.profiles import dump_catalogue, load_catalogue
from flowsched_models.runtime import HostFactory, Resident, ServiceLoad
from flowsched_models.validation import Question, validate
from flowsched_models.validation.part import Part
from flowsched_models.validation.plain import COLUMNS, plain
from flowsched_models.validation.score import Quantity
from flowsched_models.validation.sharing_kind import ServiceSharing, Sharing
from measured_data import cca_measurements

DOCS = Path(__file__).parent.parent.parent / "docs"
NOWHERE = Where("executions.csv", 2)
QPS = 20_000.0


@dataclass(frozen=True)
class Job:
    """A job of a run to be made up."""

    job: str
    node: str
    machine_type: str = "small"
    cores: tuple[int, ...] = (0, 1, 2, 3)
    start_s: float = 0.0
    factor: float = 1.0


def cache_on(node: str, machine_type: str, cores: tuple[int, ...] = (0,)) -> Placed:
    return Placed("cache", node, machine_type, cores, 1, 1.0, QPS)


def made_up(
    jobs: Sequence[Job],
    services: Sequence[Placed] = (),
    *,
    group: str = "first",
    run: str = "1",
    catalogue: Catalogue = CATALOGUE,
) -> tuple[Run, tuple[LatencyWindow, ...]]:
    """What machines that follow the model, but for the factors, would have shown."""
    hosts = HostFactory(catalogue)
    executions, windows = [], []
    for node in sorted({j.node for j in jobs}):
        here = [j for j in jobs if j.node == node]
        own = [s for s in services if s.node == node]
        loads = tuple(ServiceLoad(s.profile, s.cores, s.threads, 1.0, QPS, "plain") for s in own)
        motion: Execution[int] = Execution(hosts.host(here[0].machine_type, loads))
        for i, j in enumerate(here):
            resident = Resident(j.job, 1.0, len(j.cores), j.cores, float(len(j.cores)), ready_s=j.start_s)
            motion.start(i, resident, j.factor)
        while (until := motion.next_event_s()) < float("inf"):
            begin_s = motion.now_s
            for service, p95_us in zip(own, motion.p95_us, strict=True):
                windows.append(LatencyWindow(group, "plan", run, begin_s, until, QPS, p95_us, NOWHERE, service.profile))
            for i in motion.advance(until):
                j = here[i]
                n = len(j.cores)
                executions.append(
                    MeasuredExecution(
                        j.job, node, j.machine_type, j.cores, n, float(n), None, j.start_s, until, NOWHERE
                    )
                )
    executions.sort(key=lambda e: (e.start_s, e.job))
    return Run(group, "plan", run, "", tuple(executions), tuple(services)), tuple(windows)


def measured(*runs: tuple[Run, tuple[LatencyWindow, ...]]) -> Measurements:
    return Measurements(runs=tuple(r for r, _ in runs), latency_windows=tuple(w for _, ws in runs for w in ws))


TOGETHER = (
    Job("serial", "a"),
    Job("scaling", "a", cores=(2, 3), start_s=4.0),
    Job("hungry", "b", "large", cores=(0, 1, 4, 5)),
    Job("serial", "b", "large", cores=(1, 2, 3), start_s=20.0),
    Job("scaling", "c", start_s=7.5),
)


def test_what_the_model_made_has_no_error() -> None:
    outcome = validate(
        measured(made_up(TOGETHER, (cache_on("a", "small", (0,)), cache_on("b", "large", (7,))))), CATALOGUE
    )
    for quantity in (Quantity.DURATION, Quantity.MAKESPAN):
        errors = outcome.errors(quantity)
        assert errors is not None
        assert errors.p90 == pytest.approx(0.0, abs=1e-4), quantity
    assert len(outcome.scores) == len(TOGETHER) + 1
    # Two services of one profile: nothing tells whose p95 was measured.
    assert {(what, count > 0) for what, _, count in outcome.not_scored} == {("windows", True)}


def test_p95_that_the_model_made_has_no_error() -> None:
    run, windows = made_up(TOGETHER, (cache_on("a", "small", (0,)),))
    before = replace(windows[0], t_start_s=-20.0, t_end_s=-10.0, p95_us=CACHE.p95_us(CACHE.curves[0], QPS, "plain"))
    outcome = validate(measured((run, (before, *windows))), CATALOGUE)
    errors = outcome.errors(Quantity.P95)
    assert errors is not None
    assert errors.count == len(windows) + 1
    assert errors.p90 == pytest.approx(0.0, abs=1e-4)
    assert errors.inside_inner == 100.0
    kinds = {s.sharing for s in outcome.scores if s.quantity is Quantity.P95}
    assert kinds == {Sharing.ALONE, Sharing.OWN_CORES, Sharing.SHARED_CORES}


def test_a_window_is_the_mean_over_its_time_under_its_own_load() -> None:
    run, windows = made_up(TOGETHER, (cache_on("a", "small", (0,)),))
    begin, end = windows[0].t_start_s, windows[-1].t_end_s
    mean = sum((w.t_end_s - w.t_start_s) * w.p95_us for w in windows) / (end - begin)
    whole = replace(windows[0], t_end_s=end, p95_us=mean)
    alone = CACHE.p95_us(CACHE.curves[0], 40_000.0, "plain")
    loaded = replace(windows[0], t_start_s=end + 10.0, t_end_s=end + 20.0, qps=40_000.0, p95_us=alone)
    errors = validate(measured((run, (whole, loaded))), CATALOGUE).errors(Quantity.P95)
    assert errors is not None
    assert errors.p90 == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_a_known_error_comes_out(factor: float) -> None:
    jobs = [Job(job, f"m{i}", factor=factor) for i, job in enumerate(("serial", "scaling", "hungry"))]
    outcome = validate(measured(made_up(jobs)), CATALOGUE)
    for quantity in (Quantity.DURATION, Quantity.MAKESPAN):
        errors = outcome.errors(quantity)
        assert errors is not None
        off = 100.0 * (1.0 / factor - 1.0)
        assert (errors.median, errors.p90, errors.bias) == pytest.approx((abs(off), abs(off), off))
    (row,) = [r for r in outcome.rows(Quantity.DURATION) if r.name == "scaling"]
    assert row.errors.count == 1


def with_errors(job: float, host: float) -> Catalogue:
    return replace(
        CATALOGUE,
        jobs={name: replace(p, error=job) for name, p in CATALOGUE.jobs.items()},
        machine_types={name: replace(t, error=host) for name, t in CATALOGUE.machine_types.items()},
    )


def drawn(catalogue: Catalogue, width: float, runs: int = 300) -> Measurements:
    """Runs of two jobs on own machines, off by a normal error in the logarithm."""
    rng = np.random.default_rng(11)
    factors = np.exp(width * rng.standard_normal((runs, 2))).tolist()
    return measured(
        *(
            made_up([Job("scaling", "a", factor=a), Job("serial", "b", factor=b)], run=str(i), catalogue=catalogue)
            for i, (a, b) in enumerate(factors)
        )
    )


def test_as_many_are_inside_the_intervals_as_they_promise() -> None:
    catalogue = with_errors(0.12, 0.05)
    errors = validate(drawn(catalogue, 0.13), catalogue).errors(Quantity.DURATION)
    assert errors is not None
    assert errors.inside_inner == pytest.approx(50.0, abs=4.0)
    assert errors.inside_outer == pytest.approx(90.0, abs=3.0)


def test_intervals_that_are_too_narrow_or_too_wide_are_seen() -> None:
    narrow = validate(drawn(CATALOGUE, 0.13, 100), with_errors(0.03, 0.0)).errors(Quantity.DURATION)
    wide = validate(drawn(CATALOGUE, 0.13, 100), with_errors(0.5, 0.0)).errors(Quantity.DURATION)
    assert narrow is not None and wide is not None
    assert (narrow.inside_outer or 0.0) < 50.0
    assert (wide.inside_inner or 0.0) > 90.0


def test_kinds_of_sharing_are_told_apart() -> None:
    jobs = (
        Job("serial", "a", cores=(0, 1)),
        Job("scaling", "a", cores=(2, 3)),
        Job("serial", "b", cores=()),
        Job("scaling", "b", cores=(2,)),
        Job("hungry", "c"),
        Job("serial", "d", cores=(0,)),
        Job("scaling", "d", cores=(1,), start_s=1000.0),
    )
    run, _ = made_up([replace(j, cores=j.cores or (0, 1, 2, 3)) for j in jobs])
    executions = tuple(replace(e, cores=()) if (e.node, e.job) == ("b", "serial") else e for e in run.executions)
    services = (cache_on("a", "small", (3,)), cache_on("b", "small", (0,)))
    outcome = validate(measured((replace(run, executions=executions, services=services), ())), CATALOGUE)
    found = {(s.node, s.subject): (s.sharing, s.service_sharing) for s in outcome.scores if s.node}
    assert found == {
        ("a", "serial"): (Sharing.OWN_CORES, ServiceSharing.OWN_CORES),
        ("a", "scaling"): (Sharing.OWN_CORES, ServiceSharing.SHARED_CORES),
        ("b", "serial"): (Sharing.SHARED_CORES, ServiceSharing.SHARED_CORES),
        ("b", "scaling"): (Sharing.SHARED_CORES, ServiceSharing.OWN_CORES),
        ("c", "hungry"): (Sharing.ALONE, ServiceSharing.NONE),
        ("d", "serial"): (Sharing.ALONE, ServiceSharing.NONE),
        ("d", "scaling"): (Sharing.ALONE, ServiceSharing.NONE),
    }


def test_what_cannot_be_scored_is_counted_and_named() -> None:
    run, windows = made_up(TOGETHER, (cache_on("a", "small", (0,)),))
    executions = [replace(e, job="sort") if (e.node, e.job) == ("a", "scaling") else e for e in run.executions]
    executions = [replace(e, machine_type="huge") if e.node == "b" else e for e in executions]
    stray = replace(windows[0], run="9")
    outcome = validate(measured((replace(run, executions=tuple(executions)), (*windows, stray))), CATALOGUE)
    assert [(s.node, s.subject) for s in outcome.scores] == [("c", "scaling")]
    assert outcome.not_scored == (
        ("executions", "beside 'sort', which has no profile", 1),
        ("executions", "job 'sort' has no profile", 1),
        ("executions", "machine type 'huge' is not in the profiles", 2),
        ("runs", "some of their executions cannot be played, so the makespan is not known", 1),
        ("windows", "their run is not among the executions", 1),
        ("windows", "their service was on a machine that cannot be played", len(windows)),
    )


def test_a_service_on_a_machine_without_jobs_is_scored() -> None:
    run, _ = made_up(TOGETHER)
    alone = CACHE.p95_us(CACHE.curves[0], QPS, "plain")
    window = LatencyWindow("first", "plan", "1", 0.0, 10.0, QPS, alone, NOWHERE, "cache")
    placed = replace(run, services=(cache_on("idle", "large"),))
    errors = validate(measured((placed, (window,))), CATALOGUE).errors(Quantity.P95)
    assert errors is not None
    assert errors.median == pytest.approx(0.0, abs=1e-6)


def reference(parts: tuple[Part, ...], jobs: Sequence[Job]) -> float:
    """Signed error without some parts of what the whole model made."""
    outcome = validate(measured(made_up(jobs)), CATALOGUE, Question(without=(parts,)))
    first = outcome.rows(Quantity.DURATION)[0]
    assert first.errors.median == pytest.approx(0.0, abs=1e-4)
    (other,) = first.compared
    return other.bias


def test_the_model_without_a_part_is_scored_beside_it() -> None:
    assert reference((Part.MACHINE_FACTORS,), [Job("scaling", "a", "large")]) == pytest.approx(
        100.0 * (LARGE.speed - 1.0)
    )
    assert reference((Part.MACHINE_FACTORS,), [Job("scaling", "a")]) == pytest.approx(0.0, abs=1e-6)
    pair = [Job("scaling", "a", "large", (0, 4)), Job("scaling", "a", "large", (1, 2))]
    assert reference((Part.INTERFERENCE,), pair) < -0.1
    siblings = [Job("scaling", "a", "large", (0, 4))]
    assert reference((Part.SMT,), siblings) == pytest.approx(-25.0)
    beside_serial = [Job("serial", "a", cores=(0,)), Job("scaling", "a", cores=(0,))]
    assert reference((Part.SHARING,), beside_serial) < -20.0
    four = [Job("serial", "a", cores=(0, 1)), Job("serial", "a", cores=(0, 1), start_s=15.0)]
    assert reference((Part.PHASES,), four) != pytest.approx(0.0, abs=1e-3)
    assert reference((Part.SMT, Part.MACHINE_FACTORS), siblings) == pytest.approx(-6.25)


def test_groups_and_jobs_can_be_chosen() -> None:
    data = measured(made_up(TOGETHER, group="one"), made_up(TOGETHER, group="two"))
    outcome = validate(data, CATALOGUE, Question(groups=("two",), jobs=("serial",)))
    assert {s.group for s in outcome.scores} == {"two"}
    assert {s.subject for s in outcome.scores if s.quantity is Quantity.DURATION} == {"serial"}
    names = {r.name for r in validate(data, CATALOGUE).rows(Quantity.DURATION) if r.table == "group"}
    assert names == {"one", "two"}
    with pytest.raises(InputError) as mistake:
        validate(data, CATALOGUE, Question(groups=("tow",), jobs=("seriell",), client=None))
    assert len(mistake.value.problems) == 2
    with pytest.raises(InputError, match="has a client 'planet'"):
        validate(data, CATALOGUE, Question(client="planet"))


# The command, on files.


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    plain_data = dump_catalogue(CATALOGUE)
    for section in ("jobs", "services", "machine_types"):
        for entry in plain_data[section].values():
            entry["source"] = "made up"
    path = tmp_path / "profiles.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": "flowsched/v1", "kind": "Profiles", **plain_data}), encoding="utf-8")
    return path


def write(folder: Path, runs: Measurements, spoil: Callable[[dict[str, str]], None] = lambda _: None) -> Path:
    """The runs of one group as tables, with all digits."""
    folder.mkdir()
    rows = []
    for run in runs.runs:
        for item in (*run.services, *run.executions):
            is_job = isinstance(item, MeasuredExecution)
            row = {"schedule": run.schedule, "run": run.run, "job": item.job if is_job else item.profile}
            row |= {"node": item.node, "machine_type": item.machine_type, "cores": ",".join(map(str, item.cores))}
            row |= {"threads": str(item.threads), "cpu_request": str(item.request)}
            row |= {"start_s": repr(item.start_s) if is_job else "-10", "end_s": repr(item.end_s) if is_job else ""}
            rows.append(row)
    for row in rows:
        spoil(row)
    _table(folder / "executions.csv", rows)
    if runs.latency_windows:
        columns = ("schedule", "run", "t_start_s", "t_end_s", "qps", "p95_us", "service")
        _table(folder / "latency_runs.csv", [{c: str(getattr(w, c)) for c in columns} for w in runs.latency_windows])
    return folder


def _table(path: Path, rows: Sequence[dict[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def run_command(*args: object) -> Result:
    return CliRunner().invoke(command, [str(a) for a in args], standalone_mode=False)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    jobs = [Job(j.job, j.node, j.machine_type, j.cores, j.start_s) for j in TOGETHER]
    return write(tmp_path / "my-lab", measured(made_up(jobs, (cache_on("a", "small", (0,)),))))


def test_the_command_scores_tables(data: Path, profiles: Path, tmp_path: Path) -> None:
    limits = ("--limit-median", "0.01%", "--limit-p90", "0.01 %", "--limit-makespan", "1", "--limit-p95", "0.01%")
    done = run_command(data, "--profiles", profiles, *limits, "--without", "sharing", "--csv", tmp_path / "out.csv")
    assert done.return_value == 0, done.output
    assert "Load client: plain of cache" in done.stdout
    assert done.stdout.count("is within") == 4
    assert "my-lab" in done.stdout
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [*COLUMNS, "predicted_without_sharing"]
    assert [r["quantity"] for r in rows].count("duration") == len(TOGETHER)
    assert all(abs(float(r["error_pct"])) < 0.01 for r in rows)


def test_the_same_input_gives_the_same_bytes(data: Path, profiles: Path) -> None:
    first, again = (run_command(data, "--profiles", profiles, "--json", "--without", "smt,phases") for _ in range(2))
    assert first.stdout == again.stdout
    outcome = json.loads(first.stdout)
    assert outcome["without"] == [["smt", "phases"]]
    assert outcome["durations"][0]["count"] == len(TOGETHER)


def test_a_limit_that_is_exceeded_is_named_and_ends_with_1(tmp_path: Path, profiles: Path) -> None:
    slow = write(tmp_path / "slow", measured(made_up([Job("serial", "a", factor=1.25)])))
    done = run_command(slow, "--profiles", profiles, "--limit-median", "19%", "--limit-makespan", "21%")
    assert done.return_value == 1
    assert done.stderr == "duration error, median: 20.00 % exceeds 19 % (--limit-median)\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--limit-p90", "nan"), "--limit-p90: 'nan' is not a limit"),
        (("--limit-median", "-1%"), "--limit-median: '-1%' is not a limit"),
        (("--limit-median", "0.06"), "0.06 is probably meant as a fraction; write 6%, or 0.06% if that is meant"),
        (("--limit-p95", "6%", "--job", "hungry"), ""),
        (("--group", "you"), "there is no group 'you'"),
        (("--job", "seriel"), "did you mean 'serial'?"),
        (("--client", "x"), "no service profile has a client 'x'; known: "),
        (("--without", "smt,phase"), "there is no part 'phase' of the model; did you mean 'phases'?"),
        (("--years", "2023"), "no group of 2023 is here"),
        (("--csv", "/no/such/folder/out.csv"), "cannot be written"),
        (("--profiles", "/no/such/file"), "there is no such file"),
    ],
)
def test_bad_input_is_one_sentence(data: Path, profiles: Path, args: tuple[str, ...], message: str) -> None:
    done = run_command(data, "--profiles", profiles, *args)
    if not message:
        assert done.return_value == 0
        return
    assert isinstance(done.exception, InputError)
    assert message in str(done.exception)
    assert done.exception.exit_code == 2


def test_nothing_to_score_is_bad_input(tmp_path: Path, profiles: Path, data: Path) -> None:
    done = run_command(tmp_path / "nowhere", "--profiles", profiles)
    assert isinstance(done.exception, InputError)
    (tmp_path / "threads").mkdir()
    _table(
        tmp_path / "threads" / "threads.csv",
        [{"job": "serial", "threads": "1", "real_s": "60", "machine_type": "small"}],
    )
    done = run_command(tmp_path / "threads", "--profiles", profiles)
    assert "no run to score, because there is no table executions.csv (thread sweeps only)" in str(done.exception)

    def rename(row: dict[str, str]) -> None:
        row["machine_type"] = "huge"

    strange = write(tmp_path / "strange", measured(made_up([Job("serial", "a")])), rename)
    done = run_command(strange, "--profiles", profiles)
    assert "nothing can be scored: machine type 'huge' is not in the profiles; name the file" in str(done.exception)
    assert "--profiles FILE" in str(done.exception)
    quiet = write(tmp_path / "quiet", measured(made_up([Job("serial", "a")])))
    done = run_command(quiet, "--profiles", profiles, "--limit-p95", "6%")
    assert "nothing here can be scored for --limit-p95" in str(done.exception)


def test_machine_types_beside_the_tables_are_known(data: Path, profiles: Path) -> None:
    whole = yaml.safe_load(profiles.read_text(encoding="utf-8"))
    machines = {key: whole.pop(key) for key in ("apiVersion", "kind")} | {"machine_types": whole.pop("machine_types")}
    (data / "machine.yaml").write_text(yaml.safe_dump(machines), encoding="utf-8")
    profiles.write_text(yaml.safe_dump({"apiVersion": "flowsched/v1", "kind": "Profiles", **whole}), encoding="utf-8")
    assert run_command(data, "--profiles", profiles, "--limit-median", "1%").return_value == 0


def test_every_key_of_the_result_is_documented(data: Path) -> None:
    outcome = plain(validate(measured(made_up(TOGETHER)), CATALOGUE), (), str(data))
    text = (DOCS / "predictions.md").read_text(encoding="utf-8")
    for key in (*outcome, *outcome["durations"][0], *COLUMNS):
        assert f"`{key}`" in text, key


# The course's runs.


def test_the_bundled_profiles_predict_the_runs_of_the_course() -> None:
    data = cca_measurements().of_years("2023", "2024")
    outcome = validate(data, load_catalogue(), Question(without=((Part.MACHINE_FACTORS,), (Part.SHARING,))))
    durations = outcome.rows(Quantity.DURATION)[0]
    assert durations.errors.count > 400
    assert durations.errors.median < 4.5
    assert durations.errors.p90 < 18.0
    assert all(other.p90 > 1.5 * durations.errors.p90 for other in durations.compared)
    makespans = outcome.errors(Quantity.MAKESPAN)
    assert makespans is not None
    assert makespans.median < 2.5
    assert SMALL.name not in {s.machine_type for s in outcome.scores}
    assert SERIAL.name not in {s.subject for s in outcome.scores}

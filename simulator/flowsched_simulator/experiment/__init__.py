"""Experiments: scenarios x policies x settings x seeds, run on all cores or a cluster, their statistics and plots."""

from flowsched_simulator.experiment.contender import Contender
from flowsched_simulator.experiment.experiment import Experiment
from flowsched_simulator.experiment.experiment_file import load_experiment
from flowsched_simulator.experiment.results import Results, load_results
from flowsched_simulator.experiment.scenario_case import ScenarioCase, make_case

__all__ = ["Contender", "Experiment", "Results", "ScenarioCase", "load_experiment", "load_results", "make_case"]

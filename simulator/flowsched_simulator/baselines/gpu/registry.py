"""All rules for shared GPUs, by the names of Weng et al., "Beware of Fragmentation", USENIX ATC 2023."""

from __future__ import annotations

from collections.abc import Mapping

from flowsched_simulator.baselines.gpu.best_fit_kernels import score_best_fit
from flowsched_simulator.baselines.gpu.clustering_kernels import count_hosted, score_clustering
from flowsched_simulator.baselines.gpu.dot_prod_kernels import score_dot_prod
from flowsched_simulator.baselines.gpu.fgd_kernels import choose_fgd, placed_fgd
from flowsched_simulator.baselines.gpu.packing_kernels import score_packing
from flowsched_simulator.baselines.gpu.random_kernels import choose_random, score_alike
from flowsched_simulator.baselines.gpu.rule import GpuRule, scored_rule
from flowsched_simulator.baselines.gpu.starts import draws, fragmentation_tables, hosted_kinds

_RULES = (
    scored_rule("Random", score_alike, choose_random, start=draws),
    scored_rule("DotProd", score_dot_prod),
    scored_rule("GpuClustering", score_clustering, placed=count_hosted, start=hosted_kinds),
    scored_rule("GpuPacking", score_packing),
    scored_rule("BestFit", score_best_fit),
    GpuRule("FGD", choose_fgd, placed=placed_fgd, start=fragmentation_tables),
)
GPU_RULES: Mapping[str, GpuRule] = {rule.name: rule for rule in _RULES}
"""In the order of the publication's figures, the worst first."""

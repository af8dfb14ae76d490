"""Where own cost models find what they are written with."""

from flowsched.pricing.linear.policy import FORBIDDEN, ClassPrices, CostModel, Feature, NoFeatures

__all__ = ["FORBIDDEN", "ClassPrices", "CostModel", "Feature", "NoFeatures"]

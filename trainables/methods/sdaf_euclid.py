"""SDAF-Euclid, an ablation: SDAF's network, classified by Euclidean distance."""

from oclgrid.trainables.configs.sdaf_euclid import SdafEuclidConfig
from oclgrid.trainables.methods.sdaf import Sdaf
from oclgrid.trainables.registry import method


@method(SdafEuclidConfig)
class SdafEuclid(Sdaf):
    """SDAF with the identity in place of the inverse covariance."""

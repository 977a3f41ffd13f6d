"""SDAF-Identity, an ablation: no rotations, four updates for the same cost."""

from oclgrid.trainables.configs.sdaf_identity import SdafIdentityConfig
from oclgrid.trainables.methods.sdaf import Sdaf
from oclgrid.trainables.registry import method


@method(SdafIdentityConfig)
class SdafIdentity(Sdaf):
    """SDAF with K = 1: loss, balancing and Mahalanobis centres as before."""

"""Averaged gradient episodic memory (Chaudhry et al., 2019): never step against the memory."""

from oclgrid.trainables.configs.agem import AgemConfig
from oclgrid.trainables.maths.flat import flat, shaped
from oclgrid.trainables.maths.projection import projected
from oclgrid.trainables.methods.er import Er
from oclgrid.trainables.registry import method
from oclgrid.trainables.stream import Batch


@method(AgemConfig)
class Agem(Er):
    """Cross-entropy on the incoming batch, its gradient projected where the memory disagrees."""

    config: AgemConfig

    def retrieve(self, incoming: Batch) -> Batch | None:
        """Return a uniform draw, once there is something to protect."""
        if self.config.memory_from == "second-stage" and self.old_classes == 0:
            return None
        return super().retrieve(incoming)

    def learn(self, incoming: Batch, replay: Batch | None) -> None:
        """Step along the incoming gradient, projected; there is no replay loss."""
        loss = self.loss(incoming)
        gradients = self.gradients(loss)
        if replay is not None:
            reference = flat(self.gradients(self.loss(replay)))
            gradients = shaped(projected(flat(gradients), reference), gradients)
        self.descend(gradients, loss)

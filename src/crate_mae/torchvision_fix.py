"""The one place that imports torchvision.

Its published wheels are built for a CUDA torch. With a CPU-only torch their compiled operators don't load, and the
import fails with ``operator torchvision::nms does not exist``, and so does that of transformers. Nothing here uses
these operators: declaring the two missing ones is enough. On such a machine, import this module before transformers.
"""

import torch

try:
    import torchvision
except RuntimeError as error:
    if str(error) != "operator torchvision::nms does not exist":
        raise
    _missing = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _missing.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision

__all__ = ["torchvision"]

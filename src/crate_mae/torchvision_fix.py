"""The one place that imports torchvision.

Its published wheels are built beside a CUDA torch. Next to a CPU-only torch their compiled operators don't load, and
the import stops at ``operator torchvision::nms does not exist``, which also stops transformers. Nothing here uses these
operators: declaring the two that are missing is enough. Import this module before transformers on such a machine.
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

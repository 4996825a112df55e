"""On the path of SGLang's processes only. PyPI's torchvision lacks its operators beside a CPU torch and then cannot be
imported; SGLang imports it and calls none of them, so their schemas are enough."""

import importlib.abc
import sys


class _BeforeTorchvision(importlib.abc.MetaPathFinder):
    library = None

    def find_spec(self, name, path, target=None):
        if name == "torchvision" and self.library is None:
            import torch

            self.library = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                self.library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


sys.meta_path.insert(0, _BeforeTorchvision())

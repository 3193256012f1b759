"""Lets a CUDA-built torchvision be imported beside a CPU build of torch.

SGLang imports torchvision's Python transforms while it starts. PyPI's wheel of torchvision is built
for CUDA: beside a CPU torch its compiled library does not load, and then its own Python files fail
too, because they register shape functions for undeclared operators. This module declares those
operators just before torchvision is imported.

Invariants: only names and signatures are declared, never an implementation, so a call of `nms` or
`roi_align` still raises. Where torchvision's library does load (a CPU build of it), nothing is
declared. A line in a .pth file imports this module at every start of the environment's Python, so
it loads nothing heavy until torchvision is imported.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

_PLACE = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_ROI = f"Tensor input, Tensor rois, {_PLACE}"
_SHAPE = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_DEFORM = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask"
)
_SAMPLED = "int sampling_ratio, bool aligned"

# Every operator for which torchvision 0.28 registers a shape function.
SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    f"roi_align({_ROI}, {_SAMPLED}) -> Tensor",
    f"qroi_align({_ROI}, {_SAMPLED}) -> Tensor",
    f"ps_roi_align({_ROI}, int sampling_ratio) -> (Tensor, Tensor)",
    f"roi_pool({_ROI}) -> (Tensor, Tensor)",
    f"ps_roi_pool({_ROI}) -> (Tensor, Tensor)",
    f"deform_conv2d({_DEFORM}) -> Tensor",
    f"_roi_align_backward(Tensor grad, Tensor rois, {_PLACE}, {_SHAPE}, {_SAMPLED}) -> Tensor",
    f"_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor mapping, {_PLACE}, "
    f"int sampling_ratio, {_SHAPE}) -> Tensor",
    f"_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {_PLACE}, {_SHAPE}) -> Tensor",
    f"_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor mapping, {_PLACE}, {_SHAPE})"
    " -> Tensor",
    f"_deform_conv2d_backward(Tensor grad, {_DEFORM}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)


def library_loads(package: Path) -> bool:
    """Whether torchvision's compiled operators load into this torch (they then are loaded)."""
    import torch

    try:
        torch.ops.load_library(str(package / "_C.so"))
    except OSError:
        return False
    return True


class TorchvisionSchemas(MetaPathFinder):
    """Sees the first import of torchvision, declares what is missing, leaves the import as is."""

    def __init__(self) -> None:
        self.library: object | None = None  # torch takes the declarations back with this object

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torchvision" or self.library is not None:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin is None or library_loads(Path(spec.origin).parent):
            return spec
        import torch

        library = torch.library.Library("torchvision", "DEF")
        for schema in SCHEMAS:
            library.define(schema)
        self.library = library
        return spec


sys.meta_path.insert(0, TorchvisionSchemas())

"""Kernels that compute a layer otherwise: fused, or once more in the backward pass."""

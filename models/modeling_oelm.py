"""The first method, Q/K orthogonal over the whole matrix, and the model for transformers. docs/compat.md explains."""

from oelm import OELMConfig, OELMTransformerBlock, OrthogonalELMTransformer, OrthogonalLinear, OrthogonalMultiHeadAttention

__all__ = [
    "OELMConfig",
    "OELMTransformerBlock",
    "OrthogonalELMTransformer",
    "OrthogonalLinear",
    "OrthogonalMultiHeadAttention",
]

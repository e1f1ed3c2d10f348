"""The second method, Q/K orthogonal head by head, and the model for transformers. docs/compat.md explains."""

from oelm import OELMConfig, OELMMultiHeadAttention, OrthogonalELMTransformer

__all__ = ["OELMConfig", "OELMMultiHeadAttention", "OrthogonalELMTransformer"]

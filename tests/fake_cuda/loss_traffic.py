"""What the loss of one step moves on a GPU besides its products, in bytes, traced on a device that does not exist.

    python tests/fake_cuda/loss_traffic.py LIBRARY [--without-compiler]

Medium-512, 8 x 512 tokens, bfloat16: the loss, its gradients, and the embedding's part of the tied weight's gradient.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from imaginary import load

SEQUENCES = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--without-compiler", action="store_true")
    options = parser.parse_args()
    load(options.library)
    print(json.dumps(traced(compiled=not options.without_compiler)))


def traced(*, compiled: bool = True, fault: str | None = None) -> dict[str, Any]:
    """Bytes of the loss, in products and besides; how often the compiled region passes over its logits. With a fault,
    the region (`inside`) or what comes after it (`outside`) does something more with every logit."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from traffic import Compiled, Traffic, passes

    from oelm.core.config import resolved
    from oelm.core.settings import load_settings
    from oelm.run.training import region
    from oelm.run.training.loss import backward, summed_cross_entropy

    run = resolved(load_settings(preset="medium-512", arm="trained").run)
    model, vocabulary = run.model, run.model.vocabulary

    def faulty(logits: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
        loss = region.loss_and_gradient(logits, *given)
        logits.div_(logits.abs().amax())
        return loss

    compiler, counter = Compiled(), Traffic(vocabulary=vocabulary)
    function = torch.compile(
        faulty if fault == "inside" else region.loss_and_gradient, backend=compiler, dynamic=False, fullgraph=True
    )
    region.compiled_function = lambda: _then_once_more(function) if fault == "outside" else function
    compiler.counter = counter
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"):
        embedding = torch.nn.Embedding(vocabulary, model.d_model)
        tokens = torch.zeros(SEQUENCES, model.seq_len + 1, dtype=torch.int64)
        with counter:
            hidden = embedding(tokens[:, :-1]).flatten(0, 1)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = summed_cross_entropy(
                    hidden, embedding.weight, tokens[:, 1:].flatten(), scale=1e-3, compiled=compiled
                )
            backward(loss)
    assert embedding.weight.grad is not None
    return {
        "bytes": counter.bytes["loss", "other"],
        "bytes_of_products": counter.bytes["loss", "products"],
        "passes_over_logits": [passes(graph) for graph in compiler.graphs],
        "by_operation": {name: count for (whose, name), count in counter.by_operation.most_common() if whose == "loss"},
        "operations": dict(counter.seen),
        "products_into_another_type": sorted(counter.converting),
    }


def _then_once_more(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(logits: Any, *given: Any) -> Any:
        loss = function(logits, *given)
        logits.mul_(1)
        return loss

    return called


if __name__ == "__main__":
    main()

"""The most bytes that are alive in a step on a GPU, traced on a device that does not exist, beside the estimate.

    python tests/fake_cuda/peak_memory.py LIBRARY 'JSON'

JSON is a list of cases: {"preset" or "model", "arm", "values", "examples", "micro_batches", "precision", "compile",
"processes"}.
"""

from __future__ import annotations

import argparse
import json
import weakref
from collections.abc import Iterator
from typing import Any

from imaginary import load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("cases", type=json.loads)
    options = parser.parse_args()
    load(options.library)
    as_on_a_gpu()
    print(json.dumps([traced(case) for case in options.cases]))


def live_bytes() -> Any:
    """A mode that counts what is alive: a storage from the first operation that makes it until nobody holds it."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class LiveBytes(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.now = self.peak = 0
            self.alive: dict[int, Any] = {}

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True

        def count(self, tensor: torch.Tensor) -> None:
            storage = tensor.untyped_storage()
            key, size = storage._cdata, storage.nbytes()
            if key not in self.alive:
                self.alive[key] = weakref.finalize(storage, self._gone, key, size)
                self.now += size
                self.peak = max(self.peak, self.now)

        def _gone(self, key: int, size: int) -> None:
            self.alive.pop(key, None)
            self.now -= size

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = func(*args, **(kwargs or {}))
            for each in tree_leaves(made):
                if isinstance(each, torch.Tensor) and each.device.type == "cuda":
                    self.count(each)
            return made

    return LiveBytes()


def as_on_a_gpu() -> None:
    """Attention by the kernels that torch chooses on a GPU, which keep no scores; here it would take plain products."""
    import torch
    from torch.nn import functional

    def attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
    ) -> Any:
        if attn_mask is None and query.dtype == torch.bfloat16 and query.shape[-1] == value.shape[-1]:
            flash = torch.ops.aten._scaled_dot_product_flash_attention
            return flash(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
        assert query.shape[-1] % 8 == 0, "no fused kernel takes this width: all weights of attention would be kept"
        if attn_mask is not None:
            attn_mask = attn_mask.expand(*query.shape[:3], key.shape[2])
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention
        return efficient(query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale)[0]

    functional.scaled_dot_product_attention = attention


def traced(case: dict[str, Any]) -> dict[str, Any]:
    import numpy as np
    import torch
    import torch.distributed as dist
    from exchange_placement import agreed_exchange, connect_nobody
    from torch._subclasses.fake_tensor import FakeTensorMode

    from oelm.config import resolved
    from oelm.model.freezing import Schedule
    from oelm.model.parameters import rules
    from oelm.model.transformer import GPT
    from oelm.settings import load_settings, settings_of
    from oelm.training import region
    from oelm.training.device import Machine
    from oelm.training.distributed import World
    from oelm.training.loop import accumulate_gradients
    from oelm.training.memory import peak_bytes
    from oelm.training.next_token import NextToken

    world = World(rank=0, size=case.get("processes", 1))
    batch = case["examples"] * case["micro_batches"] * world.size
    values = case.get("values", {}) | {"training.batch_size": batch}
    if "preset" in case:
        tree = load_settings(preset=case["preset"]).run.model_dump(mode="json", include={"model": SIZES})
    else:
        tree = {"model": case["model"]}
    run = resolved(settings_of(tree, name="case", arm=case["arm"], values=values).run)
    machine = Machine("cuda:0", case["precision"], case.get("compile", False), 1, case["examples"])
    tokens = np.arange((batch + 4) * run.model.seq_len + 1) % run.model.vocabulary
    with FakeTensorMode(allow_non_fake_inputs=True):
        counter = live_bytes()
        with torch.device("cuda"):
            gpt = GPT(run.model)
        for weight in gpt.parameters():
            counter.count(weight)
        before, kept = counter.now, []
        gpt.register_forward_hook(lambda *given: kept.append(counter.now))
        schedule = Schedule(rules(gpt), steps=run.training.steps, num_layers=run.model.num_layers)
        schedule.apply(gpt, 1)
        if machine.compile:
            for block in gpt.blocks:  # divided into forward and backward as the compiler does, run without it
                block.compile(backend="aot_eager_decomp_partition", dynamic=False)
            region.compiled_function = lambda: lambda logits, targets, scale: scale.clone()  # one kernel, in place
        objective = NextToken(gpt, run, train=tokens, held_out=tokens, machine=machine, world=world)
        if world.size > 1 and not dist.is_initialized():
            connect_nobody()
        moving = [parameter for parameter in gpt.parameters() if parameter.requires_grad]
        exchange = agreed_exchange()(world, moving, objective, machine)
        with counter:
            exchange.begin(1)
            accumulate_gradients(objective, run, 1, machine=machine, world=world, before_last=exchange.open)
            exchange.finish()
    parts = peak_bytes(run, machine, world_size=world.size)
    return {
        "traced": counter.peak,
        "estimate": sum(parts.values()) - parts["moments"],
        "kept": kept[0] - before,  # by the first forward pass
        "parts": parts,
    }


SIZES = {"vocabulary", "seq_len", "d_model", "num_layers", "num_heads", "d_ff"}


def cases() -> Iterator[dict[str, Any]]:
    """What the estimate is held to: sizes, precisions, arms that change what is kept, one micro-batch and several."""
    small = {"vocabulary": 4096, "seq_len": 256, "d_model": 256, "num_layers": 4, "num_heads": 4}
    tiny = {"vocabulary": 1024, "seq_len": 128, "d_model": 128, "num_layers": 4, "num_heads": 4}
    for precision in ("bfloat16", "float32"):
        for examples, micro_batches in ((8, 1), (32, 2)):
            sized = {"examples": examples, "micro_batches": micro_batches, "precision": precision}
            yield {"preset": "medium-512", "arm": "trained", **sized}
        yield {"preset": "gpt2-124m", "arm": "trained", "examples": 8, "micro_batches": 2, "precision": precision}
        for model in (small, tiny):
            yield {"model": model, "arm": "trained", "examples": 32, "micro_batches": 2, "precision": precision}
        for arm in ARMS:
            yield {"model": small, "arm": arm, "examples": 16, "micro_batches": 2, "precision": precision}
        for values in VALUES:
            sized = {"examples": 16, "micro_batches": 2, "precision": precision}
            yield {"model": small, "arm": "frozen_head_orthogonal", "values": values, **sized}


def cases_of_two() -> Iterator[dict[str, Any]]:
    """Two processes. Of the last, with little to compute, the peak is at the end: every gradient twice."""
    medium = {"preset": "medium-512", "arm": "trained", "precision": "bfloat16", "processes": 2}
    yield {"examples": 8, "micro_batches": 2, **medium}
    yield {"examples": 1, "micro_batches": 2, "values": {"model.tied": False}, **medium}
    deep = {"vocabulary": 256, "seq_len": 16, "d_model": 512, "num_layers": 4, "num_heads": 8}
    sized = {"examples": 1, "micro_batches": 1, "precision": "float32", "processes": 2}
    yield {"model": deep, "arm": "frozen_head_orthogonal", **sized}


def compiled_cases() -> Iterator[dict[str, Any]]:
    """The same of compiled blocks, of which only what they keep is traced: the compiler makes kernels of the rest."""
    sized = {"examples": 16, "micro_batches": 1, "compile": True}
    small = {"vocabulary": 4096, "seq_len": 256, "d_model": 256, "num_layers": 2, "num_heads": 4}
    for precision in ("bfloat16", "float32"):
        for arm in ("trained", "frozen_head_orthogonal"):
            yield {"model": small, "arm": arm, "precision": precision, **sized}


ARMS = (
    "frozen_head_orthogonal", "frozen_half", "frozen_hadamard", "frozen_selection", "late_unfreeze", "frozen_value",
    "frozen_feed_forward", "frozen_embedding", "frozen_norms", "reservoir", "frozen_orthogonal_repaired",
    "frozen_orthogonal_convolution", "frozen_orthogonal_temperature", "narrow_query_key_8", "narrow_query_key_4",
)  # fmt: skip
VALUES: tuple[dict[str, Any], ...] = (
    {"model.positions": "rotary"},
    {"model.positions": "alibi"},
    {"model.tied": False},
    {"model.scores.query_key_norm": True},
    {"model.repairs.base_scale": ["value", "down"]},
    {"model.dropout": 0.1},
)

if __name__ == "__main__":
    main()

"""Bytes that operations over fake CUDA tensors would move, counted where they are made; graphs that are compiled.

What a compiled graph moves is what its inputs and outputs have, and its largest input once more for each reduction
that must be over before it is read again: the compiler fuses all that is between. (It may merge two such passes; that
is not counted on.) Products are counted apart.
"""

from __future__ import annotations

import operator
import sys
from collections import Counter
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Operations that make another view, or memory without content: nothing is moved.
FREE = (
    "view", "_unsafe_view", "t", "transpose", "permute", "detach", "slice", "expand", "unsqueeze", "squeeze", "alias",
    "split", "split_with_sizes", "select", "as_strided", "unbind", "lift_fresh", "empty", "empty_like", "empty_strided",
    "new_empty", "new_empty_strided", "is_pinned", "device", "diagonal", "unfold", "_reshape_alias", "unsafe_split",
)  # fmt: skip
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "_scaled_dot_product", "_flash_attention", "_efficient_attention")
READING = (
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "equal",
    "is_nonzero",
)
REDUCTIONS = ("amax", "amin", "sum", "mean", "logsumexp", "max", "var_mean", "_softmax", "_log_softmax")


def size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def moved_by(name: str, given: Any, made: Any) -> int:
    """Bytes read and written by one operation."""
    inputs = [each for each in tree_leaves(given) if isinstance(each, torch.Tensor)]
    outputs = [each for each in tree_leaves(made) if isinstance(each, torch.Tensor)]
    read = sum(map(size, inputs))
    if name in ("copy_", "fill_", "zero_", "zeros_like", "ones_like", "full_like", "new_zeros"):
        read = size(inputs[1]) if name == "copy_" else 0  # what is written over is not read
    if name in ("gather", "embedding", "index_select"):
        read = sum(map(size, inputs[1:])) + sum(map(size, outputs))  # of the first, what is asked for
    return read + sum(map(size, outputs))


class Traffic(TorchDispatchMode):
    """Counts in bytes, by whether it belongs to the loss: to its code, or to a tensor as long as the vocabulary."""

    def __init__(self, *, vocabulary: int = -1) -> None:
        super().__init__()
        self._lengths = {vocabulary, -(-vocabulary // 64) * 64}
        self.bytes: Counter[tuple[str, str]] = Counter()
        self.by_operation: Counter[tuple[str, str]] = Counter()
        self.seen: Counter[str] = Counter()
        self.devices: set[str] = set()
        self.host_reads: list[str] = []
        self.converting: set[tuple[str, ...]] = set()  # products into another type: their operation, and types
        self._paused = False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name == "_local_scalar_dense":
            if args[0].device.type == "cuda":
                self.host_reads.append(_caller())
            return 1.0 if args[0].is_floating_point() else 1
        made = func(*args, **(kwargs or {}))
        if self._paused:
            return made
        if name in READING or _is_waited_for(name, args, kwargs, made):
            self.host_reads.append(f"{name} {_caller()}")
        self.seen[name] += 1
        if func._overloadname.startswith("dtype"):
            self.converting.add((str(func), *(str(each.dtype) for each in (*args[:-1], made)), str(args[-1])))
        tensors = [each for each in tree_leaves((args, kwargs, made)) if isinstance(each, torch.Tensor)]
        if name not in ("_to_copy", "copy_") and name not in FREE:
            self.devices |= {each.device.type for each in tensors if each.dim() and each.is_floating_point()}
        if name not in FREE and not name.startswith("sym_"):
            whose = "loss" if _in_loss() or self._long(tensors) else "rest"
            kind = "products" if name.startswith(PRODUCTS) else "other"
            self.bytes[whose, kind] += moved_by(name, (args, kwargs), made)
            self.by_operation[whose, name] += moved_by(name, (args, kwargs), made)
        return made

    def _long(self, tensors: list[torch.Tensor]) -> bool:
        return any(not self._lengths.isdisjoint(each.shape) for each in tensors)

    def of_graph(self, graph: GraphModule, given: list[Any]) -> Any:
        """Run a compiled graph, and count it as a whole."""
        self._paused = True
        made = graph(*given)
        self._paused = False
        tensors = [each for each in tree_leaves((given, made)) if isinstance(each, torch.Tensor)]
        whose = "loss" if _in_loss() or self._long(tensors) else "rest"
        self.bytes[whose, "other"] += moved_by_graph(graph)
        self.by_operation[whose, "compiled graph"] += moved_by_graph(graph)
        return made


def _is_waited_for(name: str, args: Any, kwargs: Any, made: Any) -> bool:
    """A copy between host and device that the host waits for; to the device it does so too, and for all work before."""
    if name == "copy_":
        to, source, *further = args
        waits = not (further and further[0])
    elif name == "_to_copy":
        to, source, waits = made, args[0], not (kwargs or {}).get("non_blocking", False)
    else:
        return False
    return bool({to.device.type, source.device.type} == {"cpu", "cuda"} and waits)


def _caller() -> str:
    """The line of ours, or of a library above torch, that is being executed."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if "/torch/" not in name and not name.endswith("traffic.py"):
            return f"{'/'.join(name.split('/')[-2:])}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"


def _in_loss() -> bool:
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.endswith(("run/training/loss.py", "run/training/region.py")):
            return True
        frame = frame.f_back
    return False


# ---- Compiled graphs -----------------------------------------------------------------------------------------------


def _value(node: Node) -> Any:
    return node.meta.get("val")


def passes(graph: GraphModule) -> int:
    """How often the largest input is swept over, reads and writes."""
    largest = max((size(_value(n)) for n in graph.graph.nodes if n.op == "placeholder"), default=0)
    return moved_by_graph(graph) // largest if largest else 0


def moved_by_graph(graph: GraphModule) -> int:
    """Each input is read once for every stage in which something as large is made of it; outputs and what is written
    over an input, once. A stage ends where something waits for a reduction of the stage before."""
    nodes = list(graph.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder" and isinstance(_value(node), torch.Tensor)]
    stage: dict[Node, int] = {}
    stages_of_input: dict[Node, set[int]] = {node: set() for node in inputs}
    sources: dict[Node, set[Node]] = {}
    written = 0
    for node in nodes:
        given = list(node.all_input_nodes)
        ready = max((stage[each] for each in given), default=0)
        sources[node] = {node} if node in stages_of_input else set().union(*(sources[each] for each in given), set())
        name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
        reduces = name in REDUCTIONS and _count(node) < max((_count(each) for each in given), default=0)
        stage[node] = ready + reduces
        if node.op == "call_function" and name not in FREE and node.target is not operator.getitem:
            whole = max([_count(node), *(_count(each) for each in given)], default=0)
            for source in sources[node]:
                if name != "gather" and name != "copy_" and _count(source) == whole:
                    stages_of_input[source].add(ready)
            if name == "copy_":
                written += size(_value(given[0]))
                stages_of_input.setdefault(given[0], set())
        if node.op == "output":
            written += sum(
                size(_value(each)) for each in given if isinstance(_value(each), torch.Tensor) and not _is_copy(each)
            )
    return written + sum(
        size(_value(node)) * max(1, len(stages)) for node, stages in stages_of_input.items() if node in inputs
    )


def _is_copy(node: Node) -> bool:
    return getattr(getattr(node.target, "overloadpacket", None), "__name__", "") == "copy_"


def _count(node: Node) -> int:
    value = _value(node)
    return value.numel() if isinstance(value, torch.Tensor) else 0


class Compiled:
    """A backend for torch.compile that computes nothing: it keeps the graphs, and counts each call as a whole."""

    def __init__(self) -> None:
        self.graphs: list[GraphModule] = []
        self.dynamo_graphs = 0
        self.counter: Traffic | None = None

    def __call__(self, graph: GraphModule, examples: Any) -> Any:
        from torch._dynamo.backends.common import aot_autograd

        self.dynamo_graphs += 1
        return aot_autograd(fw_compiler=self._keep, keep_inference_input_mutations=True)(graph, examples)

    def _keep(self, graph: GraphModule, examples: Any) -> Any:
        from functorch.compile import make_boxed_func

        self.graphs.append(graph)

        def run(*given: Any) -> Any:
            return graph(*given) if self.counter is None else self.counter.of_graph(graph, list(given))

        return make_boxed_func(run)

"""Which operations of torch a block of code uses, and which of them have no deterministic form on CUDA."""

from torch.utils._python_dispatch import TorchDispatchMode

# Beginnings of what torch documents as failing on CUDA under use_deterministic_algorithms, of anything like our models.
WITHOUT_DETERMINISTIC_FORM = (
    "put", "histc", "bincount", "kthvalue", "median", "nanmedian", "cumsum", "cumprod", "scatter_reduce", "nll_loss2d",
    "_ctc_loss", "_embedding_bag", "grid_sampler", "upsample", "_adaptive", "adaptive", "avg_pool3d", "max_pool3d",
    "fractional_max", "reflection_pad", "replication_pad", "max_unpool", "index_reduce",
)  # fmt: skip


class Operations(TorchDispatchMode):
    """Records the operations of a block."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if not (name.startswith("cum") and not args[0].is_floating_point()):  # sums of whole numbers have no order
            self.seen.add(name)
        return func(*args, **(kwargs or {}))

    def without_deterministic_form(self) -> list[str]:
        return sorted(name for name in self.seen if name.startswith(WITHOUT_DETERMINISTIC_FORM))

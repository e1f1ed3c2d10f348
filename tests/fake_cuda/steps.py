"""Steps, resume, generation and validation on a CUDA device that does not exist, one report for all of them.

    python tests/fake_cuda/steps.py LIBRARY SCRATCH [SENTENCES]

SENTENCES is a folder of prepared sentences, for a step of an encoder. What goes wrong in one check is its report.
"""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from imaginary import load

STEPS = 2
# Split weights, a start without a matrix, repairs.
ARMS = ("frozen_half", "frozen_selection", "frozen_orthogonal_repaired")
OPTIONS = {"positions": "rotary", "tied": False, "scores": {"query_key_norm": True}, "dropout": 0.1}


def main() -> None:
    library, scratch, *sentences = sys.argv[1:]
    load(library)
    print(json.dumps(report(Path(scratch), sentences[0] if sentences else None)))


def report(scratch: Path, sentences: str | None) -> dict[str, Any]:
    import loss_traffic

    tokens = _token_folder(scratch)
    checks: dict[str, Callable[[], Any]] = {
        "loss": loss_traffic.traced,
        "loss, a pass more inside": lambda: loss_traffic.traced(fault="inside"),
        "loss, a pass more outside": lambda: loss_traffic.traced(fault="outside"),
        "loss, without compiler": lambda: loss_traffic.traced(compiled=False),
        **{f"arm {arm}": lambda arm=arm: _text(arm, tokens) for arm in ARMS},
        "options": lambda: _text("trained", tokens, **OPTIONS),
        "probe": _probe,
        "float32": lambda: _text("trained", tokens, precision="float32"),
        "compiled, layer by layer": lambda: _compiled("progressive_unfreeze", tokens),
        "compiled, half": lambda: _compiled("frozen_half", tokens),
        "resume": lambda: _resume("frozen_half", tokens, scratch),
        "generation": lambda: _generation("trained"),
        "a host read": lambda: _text("trained", tokens, reads=True),
        "a copy from the host": lambda: _text("trained", tokens, copies=True),
        "a tensor on the host": lambda: _text("trained", tokens, on_host=True),
    }
    if sentences is not None:
        checks["encoder"] = lambda: _encoder(sentences)
    found: dict[str, Any] = {}
    for name, check in checks.items():
        try:
            found[name] = check()
        except Exception as error:
            found[name] = {"error": f"{type(error).__name__}: {error}"[:600], "where": traceback.format_exc()[-1500:]}
    return found


def _token_folder(scratch: Path) -> Path:
    import numpy as np

    for split in ("train", "val"):
        (np.arange(5000) % 64).astype("<u2").tofile(scratch / f"{split}.bin")
    return scratch


# ---- Steps ---------------------------------------------------------------------------------------------------------


def _machine(**changes: Any) -> Any:
    from oelm.run.training.device import Machine

    settings = {"device": "cuda:0", "precision": "bfloat16", "compile": False, "threads": 1, "micro_batch_size": 3}
    return Machine(**settings | changes)


@contextlib.contextmanager
def _fake() -> Any:
    """Models are built with real numbers, then have none; everything else is fake from the start."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

    from oelm.run.training import assembly, checkpoint

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:

        def without_numbers(build: Callable[..., Any]) -> Callable[..., Any]:
            def built(*given: Any, **options: Any) -> Any:
                with unset_fake_temporarily():
                    model = build(*given, **options)
                for module in model.modules():
                    for name, parameter in list(module._parameters.items()):
                        if parameter is not None:
                            faked = torch.nn.Parameter(
                                mode.from_tensor(parameter.detach()).to("cuda"), requires_grad=parameter.requires_grad
                            )
                            module._parameters[name] = faked
                    for name, buffer in list(module._buffers.items()):
                        if buffer is not None:
                            module._buffers[name] = mode.from_tensor(buffer).to("cuda")
                model.to = lambda *given, **options: model  # it is there already
                return model

            return built

        def read(path: Path) -> Any:
            with unset_fake_temporarily():
                stored = read_tensors(path)
            return {name: mode.from_tensor(tensor) for name, tensor in stored.items()}

        read_tensors = checkpoint.read_tensors
        with (
            _patched(assembly, "build", without_numbers(assembly.build)),
            _patched(checkpoint, "read_tensors", read),
        ):
            yield without_numbers


@contextlib.contextmanager
def _patched(owner: Any, name: str, value: Any) -> Any:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _small(arm: str, *, steps: int = STEPS, **model: Any) -> Any:
    from oelm.core.config import resolved
    from small_runs import small_model, small_run

    sized = small_model(arm, num_layers=2, **model)
    return resolved(small_run(arm, steps=steps, batch_size=4).model_copy(update={"model": sized}))


def _text(
    arm: str,
    tokens: Path,
    *,
    precision: str = "bfloat16",
    reads: bool = False,
    copies: bool = False,
    on_host: bool = False,
    **model: Any,
) -> dict[str, Any]:
    from oelm.data.tokens import open_tokens

    with _fake():
        machine = _machine(precision=precision)
        faults = {"reads": reads, "copies": copies, "on_host": on_host}
        return _stepped(_small(arm, **model), open_tokens(tokens), machine, **faults)


def _probe() -> dict[str, Any]:
    from oelm.run.training.run import run_with_data
    from small_runs import small_run

    run, data = run_with_data(
        small_run("trained", data="probe:recall?pairs=2,3,4&length=16&vocabulary=64", steps=STEPS)
    )
    with _fake():
        return _stepped(run, data, _machine())


def _encoder(sentences: str) -> dict[str, Any]:
    from oelm.core.settings import load_settings
    from oelm.run.training import classification
    from oelm.run.training.run import run_with_data

    assignments = [f"steps={STEPS}", "batch_size=5", "model.dropout=0"]
    run, data = run_with_data(
        load_settings(preset="fine-tuning", arm="frozen_half", data=sentences, assignments=assignments).run
    )
    with _fake() as without_numbers:
        import transformers.masking_utils as masks

        with (
            _patched(classification, "build_encoder", without_numbers(classification.build_encoder)),
            _patched(masks, "is_tracing", lambda *given: False),  # it would not read what it reads of real tensors
        ):
            return _stepped(run, data, _machine())


def _stepped(
    run: Any,
    data: Any,
    machine: Any,
    *,
    checkpoint: Path | None = None,
    reads: bool = False,
    copies: bool = False,
    on_host: bool = False,
) -> dict[str, Any]:
    """All steps of a run, then a validation: which devices had a part, and who read what."""
    import torch
    from traffic import Traffic

    from oelm.run.training import loop
    from oelm.run.training.assembly import assembled
    from oelm.run.training.checkpoint import load_checkpoint
    from oelm.run.training.distributed import World

    real = loop.accumulate_gradients

    def accumulate(objective: Any, run: Any, step: int, **options: Any) -> Any:
        loss = real(objective, run, step, **options)
        if reads:
            float(loss)
        if copies:
            loss += torch.zeros((), dtype=loss.dtype).to(loss.device)
        if on_host:
            torch.ones(2) * 2
        return loss

    objective, optimizer, schedule = assembled(run, data, machine=machine, world=World())
    start = 0
    if checkpoint is not None:
        start = load_checkpoint(checkpoint, model=objective.model, optimizer=optimizer)["step"]
    counter = Traffic()
    with _patched(loop, "accumulate_gradients", accumulate), counter:
        steps = loop.optimization_steps(
            objective, optimizer, run, schedule=schedule, machine=machine, world=World(), start=start
        )
        taken = [result.step for result in steps]
    looking = Traffic()
    with looking:
        objective.validation()
    state = [value for each in optimizer.state.values() for value in each.values()]
    return {
        "taken": taken,
        "host_reads": counter.host_reads,
        "state_on": sorted({value.device.type for value in state}),
        "computed_on": sorted(counter.devices),
        "validated_on": sorted(looking.devices),
        "moments": len(state),
    }


def _compiled(arm: str, tokens: Path) -> dict[str, Any]:
    """Every state of requires_grad that a block is in, and the graphs that blocks were compiled to."""
    import torch
    from traffic import Compiled

    from oelm.core.model.freezing import Schedule
    from oelm.data.tokens import open_tokens
    from oelm.run.training import region

    blocks, losses, states = Compiled(), Compiled(), set()
    compile_module, apply = torch.nn.Module.compile, Schedule.apply

    def applied(self: Any, model: Any, step: int) -> None:
        apply(self, model, step)
        states.update(tuple(p.requires_grad for p in block.parameters()) for block in model.blocks)

    run = _small(arm, steps=4)
    function = torch.compile(region.loss_and_gradient, backend=losses, dynamic=False, fullgraph=True)
    with (
        _fake(),
        _patched(torch.nn.Module, "compile", lambda self, **given: compile_module(self, backend=blocks, **given)),
        _patched(Schedule, "apply", applied),
        _patched(region, "compiled_function", lambda: function),
    ):
        found = _stepped_without_validation(run, open_tokens(tokens), _machine(compile=True, micro_batch_size=4))
    return found | {"states": len(states), "graphs": blocks.dynamo_graphs, "graphs_of_the_loss": losses.dynamo_graphs}


def _stepped_without_validation(run: Any, data: Any, machine: Any) -> dict[str, Any]:
    """A validation has graphs of its own: nothing is trained in it."""
    from oelm.run.training.next_token import NextToken

    with _patched(NextToken, "validation", lambda self: None):
        return _stepped(run, data, machine)


def _resume(arm: str, tokens: Path, scratch: Path) -> dict[str, Any]:
    """A checkpoint of a real run on the CPU is the start of steps on the device."""
    from oelm.run.directory import RunDirectory
    from oelm.run.training.run import train
    from small_runs import quiet_execution, small_run

    run = small_run(arm, data=tokens, steps=STEPS, batch_size=4)
    out = scratch / "run"
    with contextlib.redirect_stdout(sys.stderr):
        train(run, quiet_execution(checkpoint_every=1, keep_checkpoints=3), out=out)
    checkpoint = RunDirectory(out).stored_checkpoints()[0]
    from oelm.data.tokens import open_tokens

    with _fake():
        return _stepped(run, open_tokens(tokens), _machine(), checkpoint=checkpoint)


def _generation(arm: str) -> dict[str, Any]:
    import torch
    from traffic import Traffic

    from oelm.core.model import generation
    from oelm.run.training.assembly import gpt_on_device
    from small_runs import small_run

    def shaped(values: list[list[int]], *, device: Any) -> Any:
        """Numbers that are known would be computed with, where nothing can be."""
        return torch.zeros(len(values), len(values[0]), dtype=torch.int64, device=device)

    counter = Traffic()
    with _fake(), _patched(generation, "_pick", lambda *given: 3), _patched(torch, "tensor", shaped):
        gpt = gpt_on_device(small_run(arm), _machine())
        with counter:
            drawn = generation.generated_tokens(gpt, [1, 2, 3], generation.Sampling())
            made = [next(drawn) for _ in range(20)]  # past the end of the context
    return {"tokens": len(made), "computed_on": sorted(counter.devices)}


if __name__ == "__main__":
    main()

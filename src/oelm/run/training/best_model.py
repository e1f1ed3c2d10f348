"""The best model of a run, written while it trains, as a folder that transformers loads: config, tokenizer, weights.

Only the weights file is ever replaced, so the folder is always whole. It is written beside training, from a copy of the
weights; whoever relies on it being there (a checkpoint, the end of the run) waits for it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from oelm.core.config import EncoderRun, GptRun, ResolvedRun
from oelm.core.model.parameters import weights_digest
from oelm.core.model.transformer import GPT
from oelm.data.folders import Data, ProbeData
from oelm.data.sentences import SentenceData
from oelm.data.tokenizer import load_tokenizer
from oelm.data.tokens import TokenData
from oelm.models.adaptation.adapting import FIELD, adaptation_record
from oelm.models.model_folder import CONFIG_FILE, GENERATION_FILE, describe_model, model_config
from oelm.run.directory import RunDirectory
from oelm.run.training.checkpoint import MODEL_FILE, contiguous, replace_tensors, stored_bytes
from oelm.storage.files import explaining_a_full_disk, refuse_link, write_bytes, write_json

Save = Callable[[], None]


class BestModel:
    """Writes one model at a time, in a thread. An error is raised in the thread that waits, never lost."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def begin(self, save: Save) -> None:
        """What `save` needs must not change any more. The one before is over first."""
        self.wait()
        # Of no concern to whoever leaves at once: the folder is whole at any moment.
        self._thread = threading.Thread(target=self._keep_error, args=(save,), name="best model", daemon=True)
        self._thread.start()

    def _keep_error(self, save: Save) -> None:
        try:
            save()
        except BaseException as error:
            self._error = error

    @contextlib.contextmanager
    def over_at_the_end(self, say: Callable[[str], None]) -> Iterator[None]:
        """However the block ends, no model is half written then. If it ends with an error, that error stays the one
        that is raised, and what went wrong here is said."""
        try:
            yield
        except BaseException:
            try:
                self.wait()
            except Exception as error:
                say(f"the best model could not be written: {error}")
            raise
        self.wait()

    def wait(self) -> None:
        """Until it is written; raises what went wrong."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error


def best_saver(
    directory: RunDirectory, model: nn.Module, run: ResolvedRun, data: Data, *, step: int, val_loss: float
) -> Save:
    """What writes the model as it is now: the weights alone, with what they are worth and their digest, into a folder
    that has all the rest."""
    folder = directory.best
    refuse_link(folder)
    match model, run, data:
        case GPT(), GptRun(), (TokenData() | ProbeData()):
            if not (folder / GENERATION_FILE).exists():
                folder.mkdir(exist_ok=True)
                tokenizer = None if data.tokenizer_folder is None else load_tokenizer(data.tokenizer_folder)
                describe_model(folder, model_config(run.model), model=run.model, tokenizer=tokenizer)
        case encoder, EncoderRun(), SentenceData():
            if not (folder / CONFIG_FILE).exists():
                folder.mkdir(exist_ok=True)
                for file in data.tokenizer_folder.iterdir():
                    write_bytes(folder / file.name, file.read_bytes())
                own: dict[str, Any] = encoder.config.to_dict()  # type: ignore[union-attr, operator]
                record = adaptation_record(model, run.model.parts, arm=run.arm, seed=run.seeds.projections)
                write_json(folder / CONFIG_FILE, own | {"architectures": [type(model).__name__], FIELD: record})
        case _:
            raise TypeError(f"{run.data}: not the data of this kind of model")
    now = model.state_dict()
    # On the CPU, and nobody else's; what shares memory there is copied once more.
    weights = {
        name: copy.clone() if copy.data_ptr() == now[name].data_ptr() else copy
        for name, copy in contiguous(now).items()
    }
    metadata = {"format": "pt", "step": str(step), "val_loss": repr(val_loss), "arm": run.arm}

    def replace() -> None:
        with explaining_a_full_disk(folder, needed_bytes=stored_bytes(weights)):
            replace_tensors(folder / MODEL_FILE, weights, metadata | {"digest": weights_digest(weights)})

    return replace

"""Python that runs in a warm process before the command: faults at exact moments, and time for signals to arrive."""

from __future__ import annotations

DIE_AT_STEP = """
import os, signal, oelm.run.training.driver as driver
steps = driver.optimization_steps
def dying_steps(*arguments, **options):
    for result in steps(*arguments, **options):
        if result.step == {step}:
            os.kill(os.getpid(), signal.SIGKILL)
        yield result
driver.optimization_steps = dying_steps
"""

DIE_INSIDE_A_SAVE = """
import os, signal, oelm.run.training.driver as driver, oelm.run.training.checkpoint as checkpoint
moments, saving = 0, False

def moment():
    global moments
    moments += saving
    if saving and moments == {moment}:
        os.kill(os.getpid(), signal.SIGKILL)

def told(function):
    def call(*arguments, **options):
        moment()
        return function(*arguments, **options)
    return call

def torn_save_file(tensors, path, metadata=None):
    moment()
    save_file(tensors, path, metadata=metadata)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    moment()
    path.write_bytes(content)

def save(directory, step, **parts):
    global saving
    saving = step == 14
    save_checkpoint(directory, step, **parts)
    if saving:
        print("moments", moments)
    saving = False

for name in ("fsync", "rename", "replace", "mkdir", "unlink", "rmdir"):
    setattr(os, name, told(getattr(os, name)))
save_file, checkpoint.save_file = checkpoint.save_file, torn_save_file
save_checkpoint, driver.save_checkpoint = driver.save_checkpoint, save
"""

DIE_BEFORE_PRUNING = """
import os, signal
from oelm.run.directory import RunDirectory
prune = RunDirectory.prune_checkpoints
def dying(self, **options):
    if len(self.stored_checkpoints()) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    prune(self, **options)
RunDirectory.prune_checkpoints = dying
"""

SLOW_STEPS = """
import time, oelm.run.training.driver as driver
steps = driver.optimization_steps
def slow_steps(*arguments, **options):
    for result in steps(*arguments, **options):
        time.sleep(0.03)
        yield result
driver.optimization_steps = slow_steps
"""

SLOW_SAVE = """
import time, oelm.run.training.checkpoint as checkpoint
write, saves = checkpoint.write_tensors, 0
def slow_write(path, *arguments):
    global saves
    saves += path.name == "optimizer.safetensors"
    if saves == 2:
        time.sleep(60)
    write(path, *arguments)
checkpoint.write_tensors = slow_write
"""

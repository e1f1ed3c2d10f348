"""The originals' names for arms. The package enters them among the aliases, so that files and commands know them.

No imports: whoever imports oelm loads this.
"""

ARM_NAMES = {
    "gpt_base": "trained",
    "baseline": "trained",
    "oelm_no_freeze": "trained_head_orthogonal",
    "oelm_freeze": "frozen_head_orthogonal",
    "oelm_v2": "frozen_head_orthogonal",
    "oelm_random": "frozen_normal",
}

# The first training script came before the head-wise method: its groups have the same names and another start.
TRAIN_PY_ARMS = {"gpt_base": "trained", "oelm_no_freeze": "trained_orthogonal", "oelm_freeze": "frozen_orthogonal"}

TWO_MEANINGS = (
    "oelm_freeze and oelm_no_freeze have two meanings: as arms and as groups of experiment_qk_freeze.py they are "
    "orthogonal head by head (frozen_head_orthogonal, trained_head_orthogonal); train.py starts from one orthogonal "
    "matrix for all heads (frozen_orthogonal, trained_orthogonal)"
)

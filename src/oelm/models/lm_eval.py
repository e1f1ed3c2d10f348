"""lm-evaluation-harness, with our model among the ones it loads.

`python -m oelm.models.lm_eval ARGUMENTS` is `lm_eval ARGUMENTS` in a process that has imported oelm; the harness
itself imports nothing that is not on its list. Exports in the GPT-2 form need only `lm_eval`.
"""

from __future__ import annotations

from oelm.machine.answers import one_line_errors
from oelm.machine.errors import UserError


def main() -> None:
    with one_line_errors("oelm.models.lm_eval", command=["lm_eval"]):
        try:
            from lm_eval.__main__ import cli_evaluate
        except ImportError as error:
            raise UserError("lm-evaluation-harness is not installed: pip install 'lm_eval[hf]'") from error
    cli_evaluate()


if __name__ == "__main__":
    main()

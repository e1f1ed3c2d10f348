"""Every option is a row: its words, the weights it adds, and one line for what it cannot be."""

import re
from pathlib import Path

import pytest

import oelm
from oelm.core.arms import Treatment
from oelm.core.options import ADDITIONS, OPTIONS, POSITIONS, addition_of, in_use
from oelm.core.parts import ROLES
from oelm.core.settings import known_keys, load_settings
from oelm.machine.errors import UserError
from oelm.show.figures.costs import COLOURS
from oelm.show.fonts import has_chinese
from oelm.show.words import WORDS
from small_runs import REPOSITORY


def test_every_option_is_a_setting_of_a_gpt_and_is_off_in_the_baseline():
    keys = known_keys(kind="gpt")
    assert all(any(f"{known}.".startswith(f"model.{key}.") for known in keys) for key in OPTIONS)
    assert list(in_use(Treatment())) == []


def test_every_row_has_words_in_both_languages_and_a_colour_where_it_adds_weights():
    for option in OPTIONS.values():
        assert all(option.words)
        assert all(option.phrase)
        assert has_chinese(option.otherwise[1])
    assert not ADDITIONS.keys() & ROLES.keys()
    for role, option in ADDITIONS.items():
        assert WORDS[f"role.{role}"] == option.words
        assert COLOURS[role] == option.colour
    assert len(set(COLOURS.values())) == len(COLOURS)


def test_a_weight_is_added_by_one_option():
    for option in ADDITIONS.values():
        for ending in option.endings:
            name = f"blocks.0.attention{ending}" if ending.startswith(".") else f"blocks.0.attention.key{ending}"
            assert addition_of(name) is option
    assert addition_of("blocks.0.attention_norm.weight") is None


def test_no_room_but_the_table_and_what_computes_knows_an_option_by_name():
    """What counts, compares, words, exports or shows options asks the table; here is who else may name one."""
    package = Path(oelm.__file__).parent
    names = "|".join(key.rpartition(".")[2] for key in OPTIONS if "." in key)
    kinds = "|".join(kind for kind in POSITIONS if kind != "none")
    alone = names.replace("source|", "")  # data have a source too
    named = re.compile(rf'(?<!`)(scores|repairs)\.({names})\b|"(\w+_)?({alone}|{kinds})"|}}_({alone})"')
    knowing = {path.relative_to(package).as_posix() for path in package.rglob("*.py") if named.search(path.read_text())}
    elsewhere = {"data/batches.py", "cli/one_run.py"}  # a seed's name; the temperature of a generated text
    assert knowing - elsewhere == {
        "core/options.py",
        "core/scores.py",  # the sections of a config
        "core/repairs.py",
        "core/parts.py",  # without scores from tokens there is no query and no key
        "core/model/attention.py",  # the order in which they are computed
        "core/model/repairs.py",
        "core/model/transformer.py",
        "core/config.py",  # the rows of a query
        "core/arms.py",
        "study/reading.py",  # a norm cancels a start's scale
        "study/sizes.py",  # the rank of a residual grows with the width
        "execution/checking/steps.py",  # takes a step of each
    }


# ---- Names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignments", "arm"),
    [
        (["model.positions=rotary"], "frozen_orthogonal_repaired"),
        (["model.scores.query_key_norm=true"], "frozen_orthogonal_repaired"),
        (["model.repairs.residual.rank=2"], "custom"),
        (["model.scores.temperature.kind=fixed"], "custom"),
        (["model.repairs.shift.per=head"], "custom"),
        (["model.parts.up.gain=2"], "custom"),
    ],
)
def test_a_name_stands_for_what_the_arm_sets_and_for_nothing_else(assignments, arm):
    settings = load_settings(preset="tiny", arm="frozen_orthogonal_repaired", assignments=assignments)
    assert settings.run.arm == arm


# ---- Bad input: one line, which begins with the key ----------------------------------------------------------------

PARTS = "'query', 'key', 'value', 'output', 'up' or 'down'"
REFUSED = {
    "positions=rotary d_model=36": "model.positions: rotary needs an even width of queries and keys per head, not 9",
    "positions=rotary query_key_width=5":
        "model.positions: rotary needs an even width of queries and keys per head, not 5",
    "positions=none position_embedding.gain=2":
        "model.parts.position_embedding: there is none where positions is none; leave it out",
    "residual.on=[value]": "model.repairs.residual.on: there is no residual (rank is 0); set rank, or leave on out",
    "nonlinear=true":
        "model.repairs.residual.nonlinear: there is no residual (rank is 0); set rank, or leave nonlinear out",
    "residual.rank=2 residual.on=[norm]": f"model.repairs.residual.on.0: 'norm' is not one of {PARTS}",
    "residual.rank=2 residual.on=[quer]":
        f"model.repairs.residual.on.0: 'quer' is not one of {PARTS}; did you mean query?",
    "residual.rank=2 residual.on=[]": "model.repairs.residual.on: names no part; leave it out",
    "residual.rank=2 residual.on=[up,up]": "model.repairs.residual.on: up is listed twice",
    "residual.rank=129": "model.repairs.residual.rank: 129 is more than d_model 128",
    "residual.rank=-1": "model.repairs.residual.rank: must be at least 0 (got -1)",
    "shift.on=[value]":
        "model.repairs.shift.on: there is no shift (per is none); set per to head or channel, or leave on out",
    "shift.per=head shift.on=[]": "model.repairs.shift.on: names no part; leave it out",
    "shift.per=head shift.on=[query]": "model.repairs.shift.on.0: 'query' is not one of 'key' or 'value'",
    "shift.per=token": "model.repairs.shift.per: 'token' is not one of 'none', 'head' or 'channel'",
    "base_scale=[key]":
        "model.repairs.base_scale: was removed; leave it out (scores.temperature.kind: per_head scales scores)",
    "query.share_of=layers":
        "model.parts.query.share_of: a share is of the heads; write layers: [0, 1, ...] to name layers",
    "positions=alibi": "model.positions: 'alibi' is not one of 'learned', 'rotary' or 'none'",
    "scores.source=nothing query.moves.kind=never":
        "model.parts.query: there is none where scores.source is nothing; leave it out",
    "scores.source=nothing shift.per=channel":
        "model.repairs.shift.on: there is no key where scores.source is nothing; leave it out",
    "scores.source=distance residual.rank=2 residual.on=[value,query]":
        "model.repairs.residual.on: there is no query where scores.source is distance; leave it out",
    "scores.source=distance query_key_norm=true":
        "model.scores.query_key_norm: there are no queries and keys where scores.source is distance; leave it out",
    "scores.source=nothing temperature.kind=per_head":
        "model.scores.temperature.kind: there is nothing to multiply where scores.source is nothing; leave it out",
    "scores.source=distance query_key_width=5":
        "model.scores.source: distance needs an even width of queries and keys per head, not 5",
    "scores.source=token": "model.scores.source: 'token' is not one of 'tokens', 'distance' or 'nothing'; did you mean "
        "tokens?",
    "convolution.width=129": "model.repairs.convolution.width: 129 is more than seq_len 128",
    "temperature.kind=warm": "model.scores.temperature.kind: 'warm' is not one of 'fixed' or 'per_head'",
    "query_key_width=0": "model.scores.query_key_width: must be at least 1 (got 0)",
    "positions=rotray": "model.positions: 'rotray' is not one of 'learned', 'rotary' or 'none'; did you mean "
        "rotary?",
}  # fmt: skip


@pytest.mark.parametrize("assignments", REFUSED)
def test_what_cannot_be_is_refused_in_one_line_with_its_key(assignments):
    with pytest.raises(UserError) as error:
        load_settings(preset="tiny", assignments=assignments.split())
    assert str(error.value) == f"--set {REFUSED[assignments]}"


def test_an_encoder_has_no_options():
    with pytest.raises(UserError, match=r"^arm: frozen_orthogonal_shift .* which an encoder cannot have$"):
        load_settings(preset="fine-tuning", arm="frozen_orthogonal_shift")
    with pytest.raises(UserError, match=r"model\.repairs: unknown key"):
        load_settings(preset="fine-tuning", assignments=["model.repairs.convolution.width=2"])


def test_the_documents_name_every_option():
    arms, studies = ((REPOSITORY / "docs" / name).read_text() for name in ("arms.md", "studies.md"))
    for key, option in OPTIONS.items():
        assert f"`{key}`" in studies
        if option.endings:
            assert f"| `{key}` |" in arms
            assert (f"| {'yes' if option.decays else 'no'} |") in next(
                line for line in arms.splitlines() if line.startswith(f"| `{key}`")
            )

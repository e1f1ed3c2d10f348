"""A probe is one text, whoever writes it how; what is wrong with it is one line."""

from pathlib import Path

import pytest

from oelm.core.config import Model, Run
from oelm.core.probes.probe import WrongProbe, canonical, probe_of, written
from oelm.core.probes.tasks import TASKS, documentation
from oelm.core.settings import load_settings
from oelm.machine.errors import UserError

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize("name", TASKS)
def test_a_probe_is_read_as_it_is_written(name):
    text = str(probe_of(f"probe:{name}"))
    assert canonical(text) == text
    assert probe_of(text).digest == probe_of(f"probe:{name}").digest


def test_the_order_of_options_does_not_matter_and_keys_and_values_say_the_same():
    text = canonical("probe:recall?length=64&pairs=4,8")
    assert text == "probe:recall?pairs=4,8&length=64&vocabulary=64"
    assert canonical(written({"probe": "recall", "pairs": [4, 8]})) == text
    assert written("data/stories") == canonical("data/stories") == "data/stories"


def test_usual_difficulties_that_do_not_fit_are_left_out():
    assert probe_of("probe:recall?length=32").difficulties == (4, 8)


WRONG = {
    "probe:recal": "unknown task; did you mean recall?",
    "probe:xyz": "unknown task; known: recall, ",
    "probe:recall?pears=4": "pears: no option of recall; it has pairs, length, vocabulary",
    "probe:recall?pairs": "'pairs' is not OPTION=VALUE",
    "probe:recall?pairs=4&pairs=8": "pairs occurs twice",
    "probe:recall?pairs=8,4": "pairs: 8,4 must be in ascending order, each once",
    "probe:recall?pairs=4,4": "pairs: 4,4 must be in ascending order, each once",
    "probe:recall?pairs=four": "pairs: must be a whole number, not 'four'",
    "probe:recall?pairs=0": "pairs: must be at least 1, not 0",
    "probe:recall?pairs=32&length=512": "pairs: 32 is more than the 31 keys that a vocabulary of 64 has",
    "probe:recall?pairs=8&length=16": "length: 16 is too short for 8 pairs and their queries; at least 32",
    "probe:noisy_recall?noise=0.95": "noise: must be at most 0.9, not 0.95",
    "probe:copy?tokens=40&length=64": "length: 64 is too short for 40 tokens and their copy; at least 81",
    "probe:induction?period=8&length=9": "length: 9 is too short for 8 tokens and a question; at least 10",
    "probe:induction?period=2": "period: must be at least 3, not 2",
    "probe:hops?nodes=2": "nodes: must be at least 3, not 2",
    "probe:induction?period=65&length=256": "period: 65 different tokens are more than the vocabulary of 64",
    "probe:hops?hops=8": "hops: 8 pointers lead around a ring of 8 nodes; at most 7",
    "probe:hops?hops=9&nodes=20": "hops: at most 8, not 9",
    "probe:hops?queries=9": "queries: 9 is more than the 8 nodes",
    "probe:memorise?items=10000": "vocabulary: 64 is too small for 10000 items; at least 103",
    "probe:memorise?items=4": "items: 4 is less than the 21 that an example of this length asks for",
}


@pytest.mark.parametrize("data", WRONG)
def test_what_is_wrong_is_one_line(data):
    with pytest.raises(WrongProbe) as caught:
        probe_of(data)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(data.partition("?")[0] + ":")
    assert WRONG[data] in line
    with pytest.raises(UserError) as refused:
        load_settings(preset="probe", assignments=[f"data={data}"])
    (line,) = str(refused.value).splitlines()
    assert WRONG[data] in line
    assert "data" in line


@pytest.mark.parametrize(
    ("assignments", "said"),
    [
        (["data=probe:recall?length=32"], "model.seq_len: must be 32, the length of the probe, not 64"),
        (["model.vocabulary=50"], "model.vocabulary: must be 64, the vocabulary of the probe, not 50"),
    ],
)
def test_a_model_is_as_long_and_wide_as_its_probe(assignments, said):
    with pytest.raises(UserError, match=said):
        load_settings(preset="probe", assignments=assignments)


def test_a_section_that_has_options_in_its_task_is_told_so():
    with pytest.raises(WrongProbe, match="is not the name of a task; options are keys beside it"):
        written({"probe": "recall?pairs=4", "length": 64})


def test_an_encoder_reads_no_probe():
    with pytest.raises(UserError, match="data: probes are for a GPT"):
        load_settings(preset="fine-tuning", assignments=["data=probe:recall"])


def test_a_run_has_the_whole_probe_written_out():
    run = Run(model=Model(seq_len=64), data="probe:recall?pairs=4")
    assert run.data == "probe:recall?pairs=4&length=64&vocabulary=64"


def test_the_documentation_has_the_table():
    page = (REPOSITORY / "docs" / "probes.md").read_text()
    missing = [line for line in documentation() if line not in page]
    assert not missing, "\n".join(missing)

"""Every code has its sentence in both languages, with the facts the analysis gives, in characters the font can show."""

import re
import string

import pytest
from example_studies import example_study, hypothesis

from chinese_words import OTHER_NAMES
from every_option import OPTIONS_SET
from oelm.analysis.findings import NOTES
from oelm.analysis.statistics import PAIR_TESTS
from oelm.analysis.summary import PRETRAINED_STEPS, STEPS, findings_of
from oelm.core.measures import MEASURES, SCALES
from oelm.core.options import OPTIONS
from oelm.core.starts import STARTS
from oelm.show.arms_in_words import described_arm
from oelm.show.encoder_words import ENCODER_WORDS
from oelm.show.fonts import chinese_font, has_chinese
from oelm.show.verdicts import sides_of
from oelm.show.words import LANGUAGES, WORDS, characters, phrases, say, say_or_code
from oelm.study.claims.kinds import KINDS
from oelm.study.claims.reasons import REASONS
from oelm.study.claims.reservations import RESERVATIONS
from oelm.study.shelf import Shelf

DIRECTION = {"better", "worse", "side"}
NAMES = DIRECTION | {"quality", "unit", "read", "nothing", "little"}  # which any phrase of a study may use


def fields(phrase: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(phrase) if name}


def test_both_languages_use_the_same_facts():
    for code, (english, chinese) in phrases():
        assert fields(english) - DIRECTION == fields(chinese) - DIRECTION, code


def test_no_phrase_is_left_in_the_other_language():
    for code, (english, chinese) in phrases():
        assert not has_chinese(english), code
        assert has_chinese(chinese) or english == chinese or len(chinese) <= 8, code


def test_a_verdict_and_a_study_have_one_name_in_chinese():
    verdicts = {code: WORDS[f"outcome.{code}"][1] for code in ("supported", "refuted", "undecided", "confounded")}
    assert list(verdicts.values()) == ["成立", "不成立", "尚无定论", "存在混杂"]
    for code, (_, chinese) in phrases():
        for other in OTHER_NAMES:
            assert other not in chinese, code


SIZES = {"size", "against"}


def test_every_code_of_the_analysis_has_a_sentence_of_its_facts():
    for code, reason in REASONS.items():
        known = NAMES | {"effect", "found", "p"} | (SIZES if code.startswith("contrast") else set())
        assert fields(WORDS[f"reason.{code}"][0]) <= set(reason.facts) | known, code
    for code, reservation in RESERVATIONS.items():
        assert fields(WORDS[f"reservation.{code}"][0]) <= set(reservation.facts) | NAMES, code
        assert not fields(WORDS[f"reservation.{code}.short"][0]), code
    for code, facts in NOTES.items():
        assert fields(WORDS[f"note.{code}"][0]) <= set(facts) | NAMES, code


def test_every_test_of_pairs_has_its_words():
    for key in PAIR_TESTS:
        assert f"verdicts.method.{key}" in WORDS


def test_every_kind_has_its_criterion():
    for key in KINDS:
        assert (
            fields(WORDS[f"criterion.{key}"][0])
            <= {"treatment", "control", "margin", "least_frozen", "solved", "per"} | NAMES | SIZES
        )


def test_every_step_and_start_has_a_name():
    for code in (*STEPS, *PRETRAINED_STEPS):
        assert f"step.{code}" in WORDS
    for start in STARTS:
        assert f"start.{start}" in WORDS


def test_words_in_place_of_others_stand_in_place_of_words_that_exist_with_their_facts():
    own = [(code, phrase, measure.scale) for measure in MEASURES.values() for code, phrase in measure.words.items()]
    own += [(code, phrase, None) for code, phrase in ENCODER_WORDS.items() if not code.startswith("next.")]
    for code, (english, _), scale in own:
        general = WORDS[code] if scale is None or code in WORDS else WORDS[f"{code}.{scale.key}"]
        assert fields(english) - NAMES <= fields(general[0]), code


def test_what_is_said_of_one_scale_is_said_of_every_scale():
    by_scale = {code.rpartition(".")[0] for code in WORDS if code.endswith(tuple(f".{each.key}" for each in SCALES))}
    assert "axis.value" in by_scale
    for code in by_scale:
        assert all(f"{code}.{scale.key}" in WORDS for scale in SCALES), code


def test_an_unknown_code_is_shown_with_its_numbers():
    assert say_or_code("en", "reason.something_new", {"pairs": 3}) == "something new: pairs 3"


def test_braces_in_a_fact_are_text():
    assert say("en", "note.unreadable", line="{x}") == "Not readable: {x}"


def test_the_font_has_every_chinese_character_of_the_texts():
    font = chinese_font()
    if font is None:
        pytest.skip("no Chinese font here; pip install 'oelm[fonts]'")
    needed = "".join(character for character in characters("zh") if has_chinese(character))
    assert len(needed) > 300
    from fontTools.ttLib import TTFont

    with TTFont(font.path, fontNumber=font.face, lazy=True) as file:
        assert not set(map(ord, needed)) - file.getBestCmap().keys()


def test_no_next_step_leans_on_the_one_before():
    """Which steps are listed depends on the study, so each has to stand first."""
    steps = [(code, phrase) for code, phrase in phrases() if code.startswith("next.") and code != "next.title"]
    assert len(steps) > 6
    for code, phrase in steps:
        assert not re.match(r"(then|also|and|afterwards|besides|after that)\b", phrase[0], re.IGNORECASE), code
        assert not re.match("然后|接着|随后|之后|此外|另外|并且|再", phrase[1]), code


def test_options_that_confound_are_named_in_the_language_of_the_report(tmp_path):
    alone = ("scores.query_key_norm", "scores.source")  # which others exclude
    options = {setting: value for setting, (value, key, _) in OPTIONS_SET.items() if key not in alone}
    claim = hypothesis("cost", "not_worse", "frozen", "trained", margin_percent=5.0)
    arms = {"trained": {}, "frozen": {"arm": "frozen_head_orthogonal", "set": options}}
    study = example_study(arms=arms, hypotheses=[claim])
    findings = findings_of(study, Shelf(tmp_path))
    verdict = findings.verdicts[0]
    found = {confound.key: confound for confound in verdict.confounds if confound.key in OPTIONS}
    assert len(found) == len(options)
    for confound in found.values():
        english, chinese = (sides_of(findings, verdict.hypothesis, confound, language) for language in LANGUAGES)
        assert english == (confound.treatment, confound.control)
        assert all(has_chinese(side) for side in chinese)
        assert not re.search(r"(?<!_)\b[a-z]{2,}\b(?!_)|, ", " ".join(chinese)), chinese


def test_an_arm_with_options_is_described_in_both_languages(tmp_path):
    arms = {"trained": {}, "frozen_orthogonal_repaired": {"set": {"model.positions": "rotary"}}}
    study = example_study(arms=arms, hypotheses=[])
    findings = findings_of(study, Shelf(tmp_path))
    said = {language: described_arm(findings, "frozen_orthogonal_repaired", language) for language in LANGUAGES}
    for words in ("rotary positions", "a trained temperature per head", "rank 1 on Q, K", "a shift of K per channel"):
        assert words in said["en"]
    for words in ("旋转位置编码", "每个头一个可训练温度", "Q、K 上秩为 1 的残差", "按通道的 K 移位"):
        assert words in said["zh"]
    assert not has_chinese(said["en"])

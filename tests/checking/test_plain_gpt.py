"""The plain GPT that ours is timed beside computes what ours does, and data sheets give the times they should."""

import pytest
import torch

from oelm.checking.cards import CARDS, card_named, peak_flops
from oelm.checking.plain_gpt import PlainGPT
from oelm.checking.roofline import SHARE_OF_PEAK, _gpt, expected, roofline_lines
from oelm.config import Seeds
from oelm.model.initialization import build
from oelm.settings import load_settings
from oelm.study.reading import load_study
from oelm.training.loss import summed_cross_entropy
from small_runs import small_run


def test_with_our_weights_it_gives_our_loss():
    model = small_run().model
    ours, plain = build(model, Seeds()).double(), PlainGPT(model).double()
    state = {
        "tokens.weight": ours.token_embedding.weight,
        "positions.weight": ours.position_embedding.weight,
        "norm.weight": ours.final_norm.weight,
        "norm.bias": ours.final_norm.bias,
    }
    for number, block in enumerate(ours.blocks):
        attention, fed, at = block.attention, block.feed_forward, f"blocks.{number}"
        parts = [attention.query.weight, attention.key.weight, attention.value.weight]
        state |= {f"{at}.query_key_value.weight": torch.cat(parts), f"{at}.mixed.weight": attention.output.weight}
        for place, norm in enumerate((block.attention_norm, block.feed_forward_norm)):
            state |= {f"{at}.norms.{place}.weight": norm.weight, f"{at}.norms.{place}.bias": norm.bias}
        for place, linear in ((0, fed.up), (2, fed.down)):
            state |= {f"{at}.fed.{place}.weight": linear.weight, f"{at}.fed.{place}.bias": linear.bias}
    plain.load_state_dict(state)
    rows = torch.randint(0, model.vocabulary, (3, model.seq_len + 1), generator=torch.Generator().manual_seed(0))
    hidden = ours(rows[:, :-1]).flatten(0, 1)
    loss = summed_cross_entropy(hidden, ours.output_weight, rows[:, 1:].flatten(), scale=1 / len(hidden))
    torch.testing.assert_close(plain(rows[:, :-1], rows[:, 1:]), loss, rtol=1e-10, atol=0)


@pytest.mark.parametrize(
    ("driver", "card"),
    [
        ("NVIDIA RTX A5000", "RTX A5000"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA A100-PCIE-40GB", None),
        ("NVIDIA RTX A500 Laptop GPU", None),
        ("NVIDIA RTX A5000 Laptop GPU", None),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", None),  # a seventh of it
        (None, None),
    ],
)
def test_a_card_is_known_by_the_drivers_name_for_it(driver, card):
    found = card_named(driver)
    assert (found and found.name) == card


def test_products_at_a_share_of_the_peak_are_part_of_a_step():
    run = _gpt(load_settings(preset="medium-512").run)
    for card in CARDS:
        found = expected(run, card)
        assert found.seconds > found.product_seconds > 0
        assert 0 < found.share_of_peak < SHARE_OF_PEAK
        assert peak_flops(card, "bfloat16") > peak_flops(card, "float32")
        assert peak_flops(card, "float32", tf32=True) is None
        assert peak_flops(card, "bfloat16", tf32=True) == peak_flops(card, "bfloat16")
    a5000, a100, h100 = (expected(run, card).seconds for card in CARDS)
    assert a5000 > a100 > h100


def test_a_study_takes_its_tuning_and_then_its_final_runs():
    lines = list(roofline_lines(load_study("qk_freeze")))
    assert lines[0].startswith("computed from data sheets, not measured")
    assert "qk_freeze: 12 tuning and 24 final runs, one card each" in lines
    assert lines[-3].startswith("4 x RTX A5000: ")

"""What the package documents by name, used as the pages say: documented.py apply|classes|results FOLDER [STUDY RUNS].

Both sides run this; whatever it computes goes into FOLDER.
"""

import sys
from pathlib import Path

what, folder = sys.argv[1], Path(sys.argv[2])
folder.mkdir(parents=True)


def weights(model, name):
    from safetensors.torch import save_file

    save_file({key: value.clone().contiguous() for key, value in model.state_dict().items()}, folder / name)


def use_apply():
    """Every family's fused or plain layout: an arm on a given model, three steps of SGD, stored and loaded."""
    import torch
    import transformers

    import oelm

    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}
    families = {
        "bert": (transformers.BertConfig, transformers.BertModel, {"intermediate_size": 64}),
        "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel, {}),
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM, {"intermediate_size": 64}),
        "gpt_neox": (transformers.GPTNeoXConfig, transformers.GPTNeoXForCausalLM, {"intermediate_size": 64}),
    }
    arms = ("frozen_head_orthogonal", "frozen_half", "frozen_orthogonalised", "frozen_feed_forward", "reservoir")
    ids = torch.arange(48).reshape(2, 24) % 64
    for family, (config, model_class, more) in families.items():
        for arm in arms:
            torch.manual_seed(3)
            model = model_class(config(**small, **more))
            print(family, arm, oelm.apply(model, arm, seed=5))
            weights(model, f"{family}-{arm}-start.safetensors")
            optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-2)
            for _ in range(3):
                model(input_ids=ids)[0].float().square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            weights(model, f"{family}-{arm}-end.safetensors")
            model.save_pretrained(folder / f"{family}-{arm}")
            weights(oelm.load(folder / f"{family}-{arm}"), f"{family}-{arm}-loaded.safetensors")


def use_classes():
    """The documents' classes and the model that `oelm.build` makes."""
    import torch

    import oelm

    ids = torch.arange(32).reshape(2, 16) % 64
    for arm in ("trained", "frozen_head_orthogonal", "frozen_orthogonal_repaired", "narrow_query_key_8"):
        settings = oelm.load_settings(
            preset="tiny", arm=arm, assignments=("vocabulary=64", "seq_len=16", "d_model=32", "num_layers=2")
        )
        model = oelm.build(settings.run.model, oelm.Seeds(weights=1, projections=2, data=3))
        weights(model, f"{arm}.safetensors")
        print(arm, [*map(float.hex, model(ids).double().flatten()[:8].tolist())])
        print(oelm.diagnose(model))
    torch.manual_seed(0)
    for each in (
        oelm.OrthogonalLinear(16, 8, True, "qr", True),
        oelm.OrthogonalMultiHeadAttention(16, 4, 0.0),
        oelm.OELMMultiHeadAttention(16, 4),
        oelm.OrthogonalELMTransformer(
            oelm.OELMConfig(vocabulary=64, seq_len=16, d_model=32, num_layers=2, num_heads=4)
        ),
    ):
        print(type(each).__name__, *(f"{name} {tuple(value.shape)}" for name, value in each.state_dict().items()))
        weights(each, f"{type(each).__name__}.safetensors")
    print(sorted(oelm.__all__), sorted(oelm.ALIASES.items()), sorted(oelm.PRESETS))


def use_results():
    import oelm

    found = oelm.results(sys.argv[4], study=sys.argv[3])
    for name in ("runs", "curves", "verdicts"):
        frame = getattr(found, name)
        (folder / f"{name}.csv").write_text(frame.to_csv(index=False), encoding="utf-8")
    (folder / "study.html").write_text(found._repr_html_(), encoding="utf-8")
    (folder / "names.txt").write_text(repr(found), encoding="utf-8")


{"apply": use_apply, "classes": use_classes, "results": use_results}[what]()

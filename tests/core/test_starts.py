"""Every start of the table: what is drawn has the scale and the form that its row says, whatever the weight's shape."""

from dataclasses import fields
from pathlib import Path

import pytest
import torch

import oelm
from oelm.core.model.projection import MatrixFreeProjection
from oelm.core.starts import STARTS, Sizes, Start, factor_sizes, orthonormal_rows, started
from small_runs import REPOSITORY

D, HEADS, LAYERS = 64, 4, 4
SHAPES = [(D, D), (4 * D, D), (D, 4 * D)]
MATRIX_FREE = [name for name, row in STARTS.items() if row.matrix_free]
DRAWN = [name for name, row in STARTS.items() if not row.of_given_weights and row.only_for != ("norm",)]


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def start(kind: str, gain: float = 1.0, shape: tuple[int, int] = (D, D)) -> torch.Tensor:
    if STARTS[kind].matrix_free:
        return matrix_free(kind, gain=gain).weight.double()
    return started(kind, draw(*shape), gain=gain, heads=HEADS, layers=LAYERS).double()


def matrix_free(kind: str, gain: float = 1.0, width: int = D, heads: int = HEADS) -> MatrixFreeProjection:
    start = STARTS[kind].matrix_free
    module = MatrixFreeProjection(width, start, gain=gain)
    sizes = Sizes(width, width, heads=heads, layers=LAYERS)
    for name, stored in start.stores.items():
        getattr(module, name).copy_(stored.make(draw(*stored.drawn(sizes))))
    return module


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (name, shape)
        for name, row in STARTS.items()
        for shape in (SHAPES[:1] if row.matrix_free else SHAPES)
        if row.scale is not None
    ],
)
def test_every_start_has_the_scale_that_its_row_says(kind, shape):
    expected = STARTS[kind].scale(Sizes(*shape, heads=HEADS, layers=LAYERS))
    assert start(kind, shape=shape).square().mean().sqrt().item() == pytest.approx(expected, rel=0.05)


def test_starts_of_one_family_differ_by_scale_alone():
    """What is drawn as another role is another start only beside it: test_initialization."""
    by_family: dict[str, torch.Tensor] = {}
    for kind in (name for name in DRAWN if not STARTS[name].drawn_as):
        values = start(kind)
        first = by_family.setdefault(STARTS[kind].family, values / values.std())
        torch.testing.assert_close(values / values.std(), first)
    directions = [values.flatten() / values.norm() for values in by_family.values()]
    for index, one in enumerate(directions):
        assert all((one - other).norm() > 0.1 for other in directions[index + 1 :])


def test_scales_where_the_sizes_are_known_are_the_documented_ones():
    sizes = Sizes(rows=D, columns=D, heads=HEADS, layers=LAYERS)
    found = {name: STARTS[name].scale(sizes) for name in DRAWN}
    large = D**-0.5
    assert found == pytest.approx(dict.fromkeys(found, large) | {"normal": 0.02, "residual_normal": 0.02 / 8**0.5})


@pytest.mark.parametrize("name", STARTS)
def test_every_start_has_its_line_in_the_docs(name):
    row = STARTS[name]
    lines = (REPOSITORY / "docs" / "arms.md").read_text().splitlines()
    assert f"| `{name}` | {' | '.join(row.documentation)} |" in lines
    for_given = not row.matrix_free and not row.by_depth and not row.only_for  # as queries or keys
    table = (REPOSITORY / "docs" / "huggingface.md").read_text().partition("| start |")[2].partition("\n\n")[0]
    assert (f"`{name}`" in table) == for_given


def test_no_room_but_the_table_and_the_named_arms_knows_what_a_start_is():
    """Names in the place of values: in a comparison, a `match`, a set or a key of a table."""
    package = Path(oelm.__file__).parent
    knowing = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(f'"{name}"' in path.read_text() for name in STARTS)
    }
    uses_them_as_values = {
        "core/starts.py",
        "core/parts.py",  # what the baseline has
        "core/options.py",  # what added weights have
        "core/arms.py",
        "models/applying.py",  # what a model has that nothing was applied to
        "models/gpt_config.py",  # what its two old arguments mean
    }
    of_the_original_experiments = {path for path in knowing if path.startswith("compat/")}
    not_starts = {path for path in knowing if path.startswith("show/figures/")}  # a style of matplotlib's
    not_starts |= {"data/prepare_sentences.py"}  # a key of its manifest
    assert knowing - of_the_original_experiments - not_starts == uses_them_as_values


# ---- Starts without a matrix ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [8, 24, 28, 64, 96])
@pytest.mark.parametrize("kind", MATRIX_FREE)
def test_what_stores_no_matrix_is_its_dense_twin(kind, width):
    """Value and gradient in double precision; 28 = 4 x 7 and 96 = 32 x 3 have odd factors."""
    module = matrix_free(kind, gain=1.5, width=width)
    x = torch.randn(2, 3, width, dtype=torch.float64, requires_grad=True)
    dense = module(torch.eye(width, dtype=torch.float64)).T
    weights = torch.randn(2, 3, width, dtype=torch.float64)
    outputs = module(x), x @ dense.T
    gradients = [torch.autograd.grad((output * weights).sum(), x)[0] for output in outputs]
    torch.testing.assert_close(*outputs, atol=1e-12, rtol=0)
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=0)
    torch.testing.assert_close(module.weight.double(), dense, atol=1e-6, rtol=0)


@pytest.mark.parametrize("width", [8, 28, 96])
@pytest.mark.parametrize("kind", [kind for kind in MATRIX_FREE if not STARTS[kind].by_head])
def test_what_stores_no_matrix_is_orthogonal(kind, width):
    dense = matrix_free(kind, width=width)(torch.eye(width, dtype=torch.float64))
    torch.testing.assert_close(dense @ dense.T, torch.eye(width, dtype=torch.float64), atol=1e-12, rtol=0)


def test_a_hadamard_start_reads_all_channels_and_a_selection_distinct_ones_in_each_head():
    assert start("hadamard").abs().unique().numel() == 1  # of a power of two: signs alone
    for head in start("selection").chunk(HEADS):
        torch.testing.assert_close(head @ head.T, torch.eye(D // HEADS, dtype=torch.float64))
    assert start("selection").count_nonzero(0).max() > 1  # two heads may read one channel


@pytest.mark.parametrize(("width", "sizes"), [(512, (16, 32)), (768, (32, 24)), (1, (1, 1)), (7, (1, 7)), (12, (4, 3))])
def test_a_hadamard_matrix_has_two_small_factors(width, sizes):
    assert factor_sizes(width) == sizes


@pytest.mark.parametrize("missing", ["family", "scale"])
def test_a_start_without_family_or_scale_cannot_exist(missing):
    row = {field.name: getattr(STARTS["normal"], field.name) for field in fields(Start)}
    with pytest.raises(TypeError, match=missing):
        Start(**{name: value for name, value in row.items() if name != missing})


# ---- Form ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_binary_starts_are_signs(shape):
    weight = start("binary", shape=shape)
    assert weight.abs().unique().numel() == 1
    assert torch.equal(weight > 0, draw(*shape) > 0)


def test_head_wise_starts_are_orthonormal_per_head():
    for head in start("head_orthogonal").chunk(HEADS):
        torch.testing.assert_close(head @ head.T, torch.eye(D // HEADS, dtype=torch.float64), atol=1e-6, rtol=0)


def test_head_wise_starts_are_not_orthogonal_as_a_whole():
    weight = start("head_orthogonal")
    assert (weight @ weight.T - torch.eye(D)).abs().max() > 0.05


def test_global_starts_are_orthonormal_as_a_whole_and_so_in_every_head():
    weight = start("orthogonal")
    torch.testing.assert_close(weight @ weight.T, torch.eye(D, dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_dense_identity_has_ones_on_its_diagonal_and_nothing_else(shape):
    assert torch.equal(start("dense_identity", shape=shape), torch.eye(*shape, dtype=torch.float64))


def test_gain_multiplies_the_start():
    torch.testing.assert_close(start("head_orthogonal", gain=2.0), 2 * start("head_orthogonal"))


def test_orthogonal_starts_have_no_preferred_sign():
    """Plain QR fixes the sign of R's diagonal, so its Q is not uniformly distributed."""
    firsts = [
        orthonormal_rows(torch.randn(4, 4, generator=torch.Generator().manual_seed(seed)))[0, 0] for seed in range(400)
    ]
    assert abs(torch.stack(firsts).mean()) < 0.1

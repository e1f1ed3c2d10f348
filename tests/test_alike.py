import math

from alike import differences

TREE = {"a": [1, 2.0, {"b": "text", "c": None}], "d": 0.1}


def test_the_last_digit_of_a_float_is_no_difference():
    assert not list(differences({"x": math.nextafter(0.1, 1.0)}, {"x": 0.1}))


def test_anything_else_is_one_by_its_place():
    changes = {
        ".d": TREE | {"d": 0.1 * (1 + 1e-11)},
        ".a[0]": TREE | {"a": [2, 2.0, {"b": "text", "c": None}]},
        ".a[1]": TREE | {"a": [1, 2, {"b": "text", "c": None}]},
        ".a[2].b": TREE | {"a": [1, 2.0, {"b": "other", "c": None}]},
        ".a[2].c": TREE | {"a": [1, 2.0, {"b": "text"}]},
        ".e": TREE | {"e": 1},
        ".a": TREE | {"a": [1, 2.0]},
    }
    assert not list(differences(TREE, TREE))
    for place, changed in changes.items():
        assert [each.partition(":")[0] for each in differences(changed, TREE)] == [place]

from mutants import MUTANTS, misplaced_line


def test_every_planted_fault_still_has_its_place():
    assert [line for each in MUTANTS if (line := misplaced_line(each))] == []

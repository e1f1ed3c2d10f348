from left_out import advice


def test_one_command_installs_all_that_was_missing_and_other_reasons_are_counted():
    reasons = [
        "apt-get install -y openssh-server git",
        "no browser: apt-get install chromium chromium-driver",
        "apt-get install -y openssh-server rsync git",
        "needs pip install 'oelm[hf]'",
        "no data here",
        "no data here",
    ]
    assert list(advice(reasons)) == [
        "3 for want of something that this installs: "
        "apt-get install -y openssh-server git chromium chromium-driver rsync",
        "1 for want of something that this installs: pip install 'oelm[hf]'",
        "2: no data here",
    ]


def test_nothing_is_said_where_nothing_was_left_out():
    assert list(advice([])) == []

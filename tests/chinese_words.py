"""Forms that no Chinese text of ours uses, so that one thing has one name.

A verdict is 成立, 不成立, 尚无定论 or 存在混杂; a study is 实验.
"""

OTHER_NAMES = ("支持", "否定", "未定", "受混杂", "研究")

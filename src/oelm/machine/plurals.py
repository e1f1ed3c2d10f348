"""A number of things in words: 1 run, 2 runs."""


def number_of(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"

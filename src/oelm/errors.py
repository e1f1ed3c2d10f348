"""The one error a user can cause: a line that names the offending key or path and says what to do."""


class UserError(Exception):
    """Shown without a traceback. The message holds one problem a line."""

    exit_code = 2
    can_be_resumed = False  # the same command goes on
    concerns_one_process = False  # of several; otherwise each would say the same


class Stopped(UserError):
    """Ended on request; the exit code is the shell's for that signal."""

    can_be_resumed = True

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


def first_line(error: Exception) -> str:
    """Of what a library says; its name where it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]

"""The one error a user can cause: a line that names the offending key or path and says what to do."""


class UserError(Exception):
    """Shown without a traceback. The message holds one problem a line."""

    exit_code = 2
    can_be_resumed = False  # the same command goes on
    concerns_one_process = False  # of several; otherwise each would say the same

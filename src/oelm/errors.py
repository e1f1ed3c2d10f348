"""The one error a user can cause: a line that names the offending key or path and says what to do."""


class UserError(Exception):
    """Shown without a traceback. The message holds one problem a line."""

    exit_code = 2

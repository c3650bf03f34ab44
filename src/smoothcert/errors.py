"""The two ways a call can fail; each message is one sentence that says what to do."""


class InputError(ValueError):
    """The call was wrong: bad arguments, bad data, a file that is not what it should be (exit code 2)."""


class RunError(RuntimeError):
    """The call was right but the run could not go on: full disk, a model that misbehaves (exit code 1)."""

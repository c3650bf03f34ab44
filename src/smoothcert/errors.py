"""The two ways a call can fail; each message is one sentence that says what to do.

It may quote a file: what would move a terminal's cursor or go on without end is taken out of it here.
"""

from smoothcert.text import printable

LONGEST = 1000


def _sentence(message: str) -> str:
    text = printable(message)
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 + 10 :]}"


class InputError(ValueError):
    """The call was wrong: bad arguments, bad data, a file that is not what it should be (exit code 2)."""

    def __init__(self, message: str) -> None:
        super().__init__(_sentence(message))


class RunError(RuntimeError):
    """The call was right but the run could not go on: full disk, a model that misbehaves (exit code 1)."""

    def __init__(self, message: str) -> None:
        super().__init__(_sentence(message))

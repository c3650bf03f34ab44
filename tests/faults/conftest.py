"""What the suite survived, at the end of its report."""


def pytest_terminal_summary(terminalreporter):
    try:
        from faults.injection import SURVIVED
    except ImportError:
        return
    if SURVIVED:
        terminalreporter.write_line("survived: " + ", ".join(f"{name} {times} ×" for name, times in SURVIVED.items()))

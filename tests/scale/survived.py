"""What was killed, counted over the suite."""

from collections import Counter

SURVIVED: Counter[str] = Counter()

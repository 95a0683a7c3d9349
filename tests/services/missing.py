"""What to do about a service that a test needs and this machine does not have."""

import os

import pytest


def skip_or_fail(message: str) -> None:
    """Skip the test with one line that says what to install; fail it where nothing may be skipped (`CI=true`)."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI=true and a service is missing: {message}", pytrace=False)
    pytest.skip(message)

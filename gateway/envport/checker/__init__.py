"""Checks that an environment follows the authoring contract, like Gymnasium's `check_env`.

Every built-in environment passes these checks, and yours should too. Call `check_environment(MyEnvironment)` in one
of your tests, or run `envport check ./my_file.py:MyEnvironment`.
"""

from envport.checker.examination import check_environment, examine
from envport.checker.report import CheckReport, Finding
from envport.checker.watch import CHECK_SECONDS, CheckWatch

__all__ = ["CHECK_SECONDS", "CheckReport", "CheckWatch", "Finding", "check_environment", "examine"]

"""The command policy: which commands may run, judged on the bash syntax tree. A guard rail; walls hold without it."""

from hutch.policy.judge import Judge, check, judge, raise_refused
from hutch.policy.profile import OPEN, STRICT, Profile
from hutch.policy.profile_file import load_profile
from hutch.policy.verdict import Verdict

__all__ = ["OPEN", "STRICT", "Judge", "Profile", "Verdict", "check", "judge", "load_profile", "raise_refused"]

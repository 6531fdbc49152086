# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Response codes of a TPM in words (part 2, 6.6; the layers of the TSS in TSS 2.0 Overview, 3.4)."""

from __future__ import annotations

from ..errors import TpmError
from ..reasons import Reason

RC_HIERARCHY = 0x085
RC_HANDLE = 0x08B
RC_AUTH_FAIL = 0x08E
RC_POLICY_FAIL = 0x09D
RC_INTEGRITY = 0x09F
RC_BAD_AUTH = 0x0A2
RC_INITIALIZE = 0x100
RC_FAILURE = 0x101
RC_PCR_CHANGED = 0x128
RC_YIELDED = 0x908
RC_TESTING = 0x90A
RC_LOCKOUT = 0x921
RC_RETRY = 0x922

RETRYABLE = frozenset({RC_RETRY, RC_TESTING, RC_YIELDED})
"""The TPM did nothing yet: the same bytes are to be sent again."""

WRONG_AUTH = frozenset({RC_AUTH_FAIL, RC_BAD_AUTH})
"""The auth value that was shown is not the entity's (with and without protection against trying them all)."""

_REASONS = {RC_HIERARCHY: Reason.TPM_HIERARCHY_DISABLED, RC_LOCKOUT: Reason.TPM_LOCKOUT}

OUT_OF_SLOTS = frozenset({0x902, 0x903, 0x905, 0x906})
"""No room for one more object or session."""

_FORMAT_ONE = {
    0x081: "ASYMMETRIC",
    0x082: "ATTRIBUTES",
    0x083: "HASH",
    0x084: "VALUE",
    0x085: "HIERARCHY",
    0x087: "KEY_SIZE",
    0x088: "MGF",
    0x089: "MODE",
    0x08A: "TYPE",
    0x08B: "HANDLE",
    0x08C: "KDF",
    0x08D: "RANGE",
    0x08E: "AUTH_FAIL",
    0x08F: "NONCE",
    0x090: "PP",
    0x092: "SCHEME",
    0x095: "SIZE",
    0x096: "SYMMETRIC",
    0x097: "TAG",
    0x098: "SELECTOR",
    0x09A: "INSUFFICIENT",
    0x09B: "SIGNATURE",
    0x09C: "KEY",
    0x09D: "POLICY_FAIL",
    0x09F: "INTEGRITY",
    0x0A0: "TICKET",
    0x0A1: "RESERVED_BITS",
    0x0A2: "BAD_AUTH",
    0x0A3: "EXPIRED",
    0x0A4: "POLICY_CC",
    0x0A5: "BINDING",
    0x0A6: "CURVE",
    0x0A7: "ECC_POINT",
}
_FORMAT_ZERO = {
    0x100: "INITIALIZE",
    0x101: "FAILURE",
    0x103: "SEQUENCE",
    0x120: "DISABLED",
    0x121: "EXCLUSIVE",
    0x124: "AUTH_TYPE",
    0x125: "AUTH_MISSING",
    0x126: "POLICY",
    0x127: "PCR",
    0x128: "PCR_CHANGED",
    0x12D: "UPGRADE",
    0x12E: "TOO_MANY_CONTEXTS",
    0x12F: "AUTH_UNAVAILABLE",
    0x130: "REBOOT",
    0x131: "UNBALANCED",
    0x142: "COMMAND_SIZE",
    0x143: "COMMAND_CODE",
    0x144: "AUTHSIZE",
    0x145: "AUTH_CONTEXT",
    0x146: "NV_RANGE",
    0x147: "NV_SIZE",
    0x148: "NV_LOCKED",
    0x149: "NV_AUTHORIZATION",
    0x14A: "NV_UNINITIALIZED",
    0x14B: "NV_SPACE",
    0x14C: "NV_DEFINED",
    0x150: "BAD_CONTEXT",
    0x151: "CPHASH",
    0x152: "PARENT",
    0x153: "NEEDS_TEST",
    0x154: "NO_RESULT",
    0x155: "SENSITIVE",
    0x901: "CONTEXT_GAP",
    0x902: "OBJECT_MEMORY",
    0x903: "SESSION_MEMORY",
    0x904: "MEMORY",
    0x905: "SESSION_HANDLES",
    0x906: "OBJECT_HANDLES",
    0x907: "LOCALITY",
    0x908: "YIELDED",
    0x909: "CANCELED",
    0x90A: "TESTING",
    0x920: "NV_RATE",
    0x921: "LOCKOUT",
    0x922: "RETRY",
    0x923: "NV_UNAVAILABLE",
}
_FORMAT_ONE_BIT = 0x080
_PARAMETER_BIT = 0x040
_SESSION_BIT = 0x800
_LAYER_SHIFT = 16


class ResponseError(TpmError):
    """The TPM answered a command with an error; ``base`` is the response code without its place.

    ``about_parameter`` says that it refused what it was given, not who asked or in which state.
    """

    def __init__(self, code: int, command: str, *, reason: Reason | None = None) -> None:
        self.code_number = code
        self.base = base(code)
        chosen = reason or _REASONS.get(self.base, Reason.TPM_COMMAND_FAILED)
        super().__init__(f"expected success of {command}, got {describe(code)}", reason=chosen, hint=_hint(code))
        self.about_parameter = code & (_FORMAT_ONE_BIT | _PARAMETER_BIT) == _FORMAT_ONE_BIT | _PARAMETER_BIT


def base(code: int) -> int:
    """Return the response code without the number of the parameter, handle or session that it complains about."""
    return code & 0x0BF if code & _FORMAT_ONE_BIT and not code >> _LAYER_SHIFT else code


def describe(code: int) -> str:
    """Return a response code in words, for example ``TPM_RC_INTEGRITY (0x1DF, parameter 1)``."""
    if code >> _LAYER_SHIFT:
        return f"response code {code:#X} of software layer {code >> _LAYER_SHIFT} in front of the TPM"
    if not code & _FORMAT_ONE_BIT:
        return f"TPM_RC_{_FORMAT_ZERO.get(code, 'unknown')} (0x{code:03X})"
    name = _FORMAT_ONE.get(base(code), "unknown")
    return f"TPM_RC_{name} (0x{code:03X}{_place(code)})"


def _place(code: int) -> str:
    number = code >> 8 & 0xF
    if code & _PARAMETER_BIT:
        return f", parameter {number}"
    if code & _SESSION_BIT:
        return f", session {number & 7}"
    return f", handle {number}" if number else ""


def _hint(code: int) -> str | None:
    if code == RC_INITIALIZE:
        return "Nothing has started this TPM since its reset: a firmware does it; swtpm needs --flags startup-clear."
    if code in OUT_OF_SLOTS:
        return "Other programs have left objects in the TPM: use device:/dev/tpmrm0, or tpm2_flushcontext -t and -l."
    return None

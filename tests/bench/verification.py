# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the verification of a quote costs beside the one ECDSA verification that is in it; and of a whole answer.

No TPM: a test attester made the evidence. The whole answer includes the replay of a recorded boot's event logs.
Usage: python tests/bench/verification.py [--rounds N]
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, cast

from ansible_collections.attested.kubernetes.plugins.module_utils.evidence.tpm2 import issue, verify_quote
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.constants import PCR_COUNT
from ansible_collections.attested.kubernetes.plugins.module_utils.tpm.structures import Signature
from ansible_collections.attested.kubernetes.tests.support.bench import Figure, interleaved, report
from ansible_collections.attested.kubernetes.tests.support.exchange import Exchange
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

if TYPE_CHECKING:
    from collections.abc import Callable

QUALIFYING_DATA = b"q" * 32
BARE, QUOTE, WHOLE = "one ECDSA P-256 verification", "verify a quote, no log", "verify an answer with its logs"


def operations() -> dict[str, Callable[[], object]]:
    """Return what is measured, by name."""
    exchange = Exchange()
    evidence = issue(exchange.tpm, exchange.tpm.ak, qualifying_data=QUALIFYING_DATA, pcrs=range(PCR_COUNT))
    key = cast("ec.EllipticCurvePublicKey", exchange.tpm.ak.public.key())
    signature, algorithm = Signature.parse(evidence.signature).raw(), ec.ECDSA(hashes.SHA256())
    challenge, record = exchange.challenged()
    answer = exchange.answered(challenge)
    return {
        BARE: lambda: key.verify(signature, evidence.quote, algorithm),
        QUOTE: lambda: verify_quote(evidence, qualifying_data=QUALIFYING_DATA),
        WHOLE: lambda: exchange.verified(answer, record),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300, help="default: %(default)s")
    took = interleaved(operations(), rounds=parser.parse_args().rounds)
    bare = took[BARE]
    report(
        Figure(name=QUOTE, value=took[QUOTE], unit="ms", budget=0.5, baseline=bare, baseline_name=f"ms, {BARE}"),
        Figure(name=WHOLE, value=took[WHOLE], unit="ms", baseline=bare, baseline_name=f"ms, {BARE}"),
    )


if __name__ == "__main__":
    main()

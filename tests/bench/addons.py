# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What it costs to save custom objects and to put them back, beside kubectl doing the same once; real etcd and API.

Usage: python tests/bench/addons.py [--objects N] [--bytes N]      (5,000 objects of 10,000 bytes are 50 MB)
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.attested.kubernetes.plugins.module_utils.admin.age_file import close_to, make_identity
from ansible_collections.attested.kubernetes.plugins.module_utils.core.host import SystemClock
from ansible_collections.attested.kubernetes.plugins.module_utils.kubeadm.custom_objects import CustomObjects, to_list
from ansible_collections.attested.kubernetes.tests.support import charts
from ansible_collections.attested.kubernetes.tests.support.api_bed import ApiBed, api_bed, why_not
from ansible_collections.attested.kubernetes.tests.support.bench import Figure, report
from ansible_collections.attested.kubernetes.tests.support.rotation import kubectl

if TYPE_CHECKING:
    from collections.abc import Callable

SAVE_SECONDS = 60
BATCH = 500


def widgets(count: int, size: int) -> list[dict[str, Any]]:
    """Return objects with a status and a text of ``size`` bytes."""
    return [
        {
            "apiVersion": f"{charts.GROUP}/v1",
            "kind": "Widget",
            "metadata": {"name": f"w-{number}", "namespace": "default"},
            "spec": {"size": number, "text": "x" * size},
            "status": {"phase": "Ready"},
        }
        for number in range(count)
    ]


def create(bed: ApiBed, items: list[dict[str, Any]]) -> None:
    """Create objects as an admin does, and give them their status."""
    for start in range(0, len(items), BATCH):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items[start : start + BATCH]})
        bed.kubectl("create", "-f", "-", stdin=text)
        bed.kubectl("replace", "--subresource=status", "-f", "-", stdin=text)


def seconds(work: Callable[[], object]) -> float:
    """Return how long ``work`` takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def measure(bed: ApiBed, count: int, size: int) -> None:
    """Save and put back ``count`` objects of ``size`` bytes, and report."""
    bed.apply(charts.definition())
    bed.kubectl("wait", "--for=condition=Established", f"crd/{charts.WIDGETS}", "--timeout=900s")
    created = seconds(lambda: create(bed, widgets(count, size)))
    objects = CustomObjects(kubectl(bed), clock=SystemClock())
    recipient = make_identity()[1]
    begun = time.perf_counter()
    saved = objects.save([charts.WIDGETS], release="none", namespace="none")
    close_to(to_list(saved), [recipient])
    taken = time.perf_counter() - begun
    read = seconds(lambda: bed.kubectl("get", charts.WIDGETS, "--all-namespaces", "-o", "json"))
    bed.kubectl("delete", "crd", charts.WIDGETS, "--wait=false")
    back = seconds(lambda: objects.put_back(saved, failed=True))
    report(
        Figure(
            name=f"save {count} custom objects of {size} bytes",
            value=taken,
            unit="s",
            baseline_name="kubectl get",
            baseline=read,
            budget=SAVE_SECONDS,
        ),
        Figure(
            name=f"put {count} custom objects of {size} bytes back",
            value=back,
            unit="s",
            baseline_name="kubectl create and replace",
            baseline=created,
        ),
    )


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=5000)
    parser.add_argument("--bytes", type=int, default=800)
    given = parser.parse_args()
    if reason := why_not():
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory(prefix="addons-") as directory, api_bed(Path(directory)) as bed:
        measure(bed, given.objects, given.bytes)


if __name__ == "__main__":
    main()

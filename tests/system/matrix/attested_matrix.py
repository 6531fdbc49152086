# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lies beside the collection on a lab machine: strikes once, just before the step that its order names.

The test appends a call of `before` to the deployed copies of the modules with the steps; the code itself has no hook.
"""

import json
import os
import pathlib
import subprocess
import time

ORDER = pathlib.Path("/var/lib/attested-matrix/order.json")
STRUCK = pathlib.Path("/var/lib/attested-matrix/struck.json")
COMMANDS = {
    "kill": [["systemctl", "kill", "--kill-whom=all", "--signal=KILL", "attested-bootstrapper.service"]],
    "reboot": [["systemctl", "reboot", "--force"]],
    "cut": [
        ["iptables", "--wait", "--insert", "INPUT", "--in-interface", "eth0", "--jump", "DROP"],
        ["iptables", "--wait", "--insert", "OUTPUT", "--out-interface", "eth0", "--jump", "DROP"],
    ],
}


def before(owner, method, point_of):
    """Let the fault come before ``method`` of the class ``owner``; ``point_of`` its arguments is the point's name."""
    go_on = getattr(owner, method)

    def struck(*arguments, **named):
        _strike(point_of(*arguments, **named))
        return go_on(*arguments, **named)

    setattr(owner, method, struck)


def _strike(point):
    try:
        order = json.loads(ORDER.read_text())
    except FileNotFoundError:
        return
    if order["point"] != point:
        return
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    STRUCK.write_text(json.dumps({**order, "boot": boot}))
    ORDER.unlink()
    os.sync()
    for command in COMMANDS[order["fault"]]:
        subprocess.run(command, check=True)
    if order["fault"] != "cut":
        time.sleep(600)

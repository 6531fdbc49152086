# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write `plugins/module_utils/proto/descriptors.py` from the .proto files (needs grpcio-tools).

Usage: python tests/support/build_descriptors.py [--check]
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

PROTO = Path(__file__).resolve().parents[2] / "plugins" / "module_utils" / "proto"
TARGET = PROTO / "descriptors.py"
HEADER = Path(__file__).read_text(encoding="utf-8").split('"""', maxsplit=1)[0]
WIDTH = 100


def descriptor_set() -> bytes:
    """Return the serialised FileDescriptorSet of every .proto file."""
    with tempfile.NamedTemporaryFile() as out:
        files = sorted(path.name for path in PROTO.glob("*.proto"))
        code = protoc.main(["protoc", f"-I{PROTO}", f"--descriptor_set_out={out.name}", "--include_imports", *files])
        if code:
            raise SystemExit(code)
        return Path(out.name).read_bytes()


def rendered() -> str:
    """Return the Python file that holds the set."""
    text = base64.b64encode(descriptor_set()).decode()
    lines = "\n".join(f'    "{text[at : at + WIDTH]}"' for at in range(0, len(text), WIDTH))
    return (
        f'{HEADER}"""The compiled .proto files of this directory; made by tests/support/build_descriptors.py."""\n\n'
        f"from __future__ import annotations\n\nDESCRIPTOR_SET_BASE64 = (\n{lines}\n)\n"
    )


def main() -> None:
    """Write the file, or compare it with --check."""
    if "--check" in sys.argv[1:]:
        if TARGET.read_text(encoding="utf-8") != rendered():
            raise SystemExit("descriptors.py is not what the .proto files say: run tests/support/build_descriptors.py")
        return
    TARGET.write_text(rendered(), encoding="utf-8")


if __name__ == "__main__":
    main()

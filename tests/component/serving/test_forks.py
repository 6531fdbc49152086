# Copyright (c) 2026 The attested.kubernetes authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process whose threads are within gRPC starts programs: each one runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

FORKS = 60

PROGRAM = """
    import asyncio, collections, json, os, pty, sys, threading

    from ansible_collections.attested.kubernetes.plugins.module_utils._deps.grpc import grpc

    ended = collections.Counter()

    def start_programs(count):
        for _number in range(count):
            pid, terminal = pty.fork()  # as pexpect does for ansible-runner
            if pid == 0:
                os.execv("/bin/true", ["true"])
            _pid, status = os.waitpid(pid, 0)
            os.close(terminal)
            ended[status] += 1

    async def answer(request, _context):
        for _number in range(3):
            await asyncio.sleep(0.001)
            yield request

    async def call(port, starting):
        while starting.is_alive():
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                async for _answer in channel.unary_stream("/a.B/C")(b"x"):
                    pass

    async def main():
        server = grpc.aio.server()
        method = grpc.unary_stream_rpc_method_handler(answer)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.B", {"C": method}),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        starting = threading.Thread(target=start_programs, args=(int(sys.argv[1]),))
        starting.start()
        await asyncio.gather(*(call(port, starting) for _client in range(8)))
        await server.stop(0)

    asyncio.run(main())
    print(json.dumps(ended))
"""


def test_programs_that_are_started_while_calls_go_on_all_run() -> None:
    """With gRPC's own fork handlers 87 of 400 died of a signal here (grpcio 1.85.1); a new interpreter imports ours."""
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    words = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(FORKS)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"0": FORKS}

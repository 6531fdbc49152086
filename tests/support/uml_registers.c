/* Copyright (c) 2026 The attested.kubernetes authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * ptrace(2) for User Mode Linux on a processor with AMX; `uml.py` preloads it.
 *
 * User Mode Linux 6.1 reads and writes 2,696 bytes of NT_X86_XSTATE. A processor with AMX has 11,008, and the host refuses to
 * write fewer (fpu/regset.c of Linux: EFAULT), so the kernel panics before its first program runs. This ptrace reads and
 * writes all of them and gives the caller the part that it asks for; the tiles of AMX stay as they are.
 */

enum { SYS_PTRACE = 101, PEEK_FIRST = 1, PEEK_LAST = 3, GET_REGISTERS = 0x4204, SET_REGISTERS = 0x4205, XSTATE = 0x202 };

struct part { void *start; unsigned long bytes; };

long syscall(long number, ...);

static char registers[65536] __attribute__((aligned(64)));

long ptrace(int request, long process, void *address, void *data)
{
	struct part whole = { registers, sizeof registers }, *part = data;
	long word, result;

	if (request >= PEEK_FIRST && request <= PEEK_LAST) {
		result = syscall(SYS_PTRACE, request, process, address, &word);
		return result < 0 ? result : word;
	}
	if ((request != GET_REGISTERS && request != SET_REGISTERS) || (unsigned long)address != XSTATE)
		return syscall(SYS_PTRACE, request, process, address, data);
	result = syscall(SYS_PTRACE, GET_REGISTERS, process, address, &whole);
	if (result < 0 || whole.bytes <= part->bytes)
		return result < 0 ? result : syscall(SYS_PTRACE, request, process, address, data);
	if (request == GET_REGISTERS) {
		__builtin_memcpy(part->start, registers, part->bytes);
		return result;
	}
	__builtin_memcpy(registers, part->start, part->bytes);
	return syscall(SYS_PTRACE, SET_REGISTERS, process, address, &whole);
}

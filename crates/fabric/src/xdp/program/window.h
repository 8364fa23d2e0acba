// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What makes an operation happen exactly once (F2): the window of a caller, whose rules are those of src/window.rs. There a lock is held;
// here an entry changes hands by compare-and-swap, and whoever finds another at work on it gives up: the other one answers.

#pragma once

#include "layout.h"

static __always_inline struct entry *entry_of(void *caller, __u64 number)
{
	__u64 at = 1 + (number & (WINDOW - 1));
	return bpf_map_lookup_elem(caller, &at);
}

enum claimed { CLAIMED, REPEATED, TURNED_DOWN, REFUSED, BUSY };

// Claims an identifier for execution, before anything is executed (F2).
static __always_inline enum claimed claim(struct entry *entry, __u64 id, __u64 *outcome)
{
	__u64 known = *(volatile __u64 *)&entry->claim;
	if (id == 0 || id < known >> CLAIM_BITS || id >> (64 - CLAIM_BITS))
		return REFUSED;
	if (id > known >> CLAIM_BITS) {
		__u64 before = __sync_val_compare_and_swap(&entry->claim, known, id << CLAIM_BITS | CLAIM_RUNNING);
		return before == known ? CLAIMED : BUSY;
	}
	switch (known & CLAIM_MASK) {
	case CLAIM_EXECUTED:
		*outcome = *(volatile __u64 *)&entry->outcome;
		// A newer identifier that came meanwhile has another outcome.
		return *(volatile __u64 *)&entry->claim == known ? REPEATED : BUSY;
	case CLAIM_RUNNING:
		return BUSY;
	case CLAIM_TURNED_DOWN:
		return TURNED_DOWN;
	default:
		return REFUSED;
	}
}

static __always_inline void conclude(struct entry *entry, __u64 id, __u64 outcome, enum claim claim)
{
	*(volatile __u64 *)&entry->outcome = outcome;
	// A full barrier: whoever reads this claim reads its outcome.
	__sync_val_compare_and_swap(&entry->claim, id << CLAIM_BITS | CLAIM_RUNNING, id << CLAIM_BITS | claim);
}

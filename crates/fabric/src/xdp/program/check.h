// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Whether a frame is one.

#pragma once

#include "layout.h"

// Looks at one element or the head of one item. Ends with 1 at the end of the frame, and at what cannot be.
static long look(__u32 index __attribute__((unused)), struct run *run)
{
	struct frame *frame = run->frame;
	struct work *work = &frame->work;
	__u32 at = work->at;

	if (at >= run->words)
		return 1;
	__u64 head = frame->words[at & 255];
	if (at == work->item_end) {
		__u32 kind = head & 0xff, elements = head >> 16 & 0xffff, end = at + (__u32)(head >> 48);
		// Room for an outcome is zero.
		if (work->elements || head & 0x0000ffff0000ff00ull || end > run->words || at + ITEM_WORDS > end)
			return 1;
		if (kind == SETTLE ? elements || at + ITEM_WORDS != end : kind != BATCH || !elements)
			return 1;
		work->elements = elements;
		work->item_end = end;
		work->done++;
		work->at = at + ITEM_WORDS;
		return 0;
	}
	__u32 what = head & 0xff, all = head >> 32 & 0xffff, skip = head >> 8 & 0xff, keep = head >> 16 & 0xff;
	if (!work->elements || at + ELEMENT_WORDS + all > work->item_end || head & 0xffff0000ff000000ull)
		return 1;
	if (what >= READ_WORD && what <= FETCH_ADD) {
		if (skip || keep || all != (what == COMPARE_SWAP ? 2 : 1))
			return 1;
	} else if ((what != READ && what != WRITE) || skip > 7 || keep > 7 || skip + keep > 8 * all) {
		return 1;
	}
	work->elements--;
	work->at = at + ELEMENT_WORDS + all;
	return 0;
}

// Whether a frame is one from its first word to its last. Nothing of it is executed before all of it was found well-formed.
static __always_inline bool is_well_formed(struct run *run)
{
	struct frame *frame = run->frame;
	struct work *work = &frame->work;

	work->at = FRAME_WORDS;
	work->item_end = FRAME_WORDS;
	work->elements = 0;
	work->done = 0;
	bpf_loop(MOST_WORDS, look, run, 0);
	// It stopped at the end, and as many items were there as were announced.
	return work->at == run->words && work->at == work->item_end && !work->elements && work->done &&
	       frame->words[1] >> 32 == work->done;
}

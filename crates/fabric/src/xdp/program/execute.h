// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Executes the items of a frame that was found well-formed, and writes their outcomes where they stood.
//
// Its functions return 0 to be called for the next word, element or item, and 1 to end the frame.

#pragma once

#include "window.h"

static __always_inline __u64 *word_of(void *region, __u64 at)
{
	__u64 index = REGION_HEADER_WORDS + (at >> 3);
	return bpf_map_lookup_elem(region, &index);
}

static __always_inline __u64 header_of(void *region, __u64 index)
{
	__u64 *word = bpf_map_lookup_elem(region, &index);
	return word ? *word : 0;
}

// A copy of it is worked on elsewhere at this moment, and will be answered.
static __always_inline long give_up(struct run *run)
{
	run->overtaken = true;
	return 1;
}

static __always_inline long end_item(struct frame *frame, __u32 outcome, __u64 detail)
{
	struct work *work = &frame->work;
	__u64 head = frame->words[work->item & 255] & 0xffff0000ffff00ffull;

	frame->words[work->item & 255] = head | (__u64)outcome << 8 | (__u64)work->done << 32;
	frame->words[(work->item + 3) & 255] = detail;
	frame->words[(work->item + 4) & 255] = 0;
	work->at = work->item_end;
	work->left = 0;
	work->elements = 0;
	return 0;
}

static __always_inline long end_element(struct frame *frame, bool effect)
{
	struct work *work = &frame->work;

	work->id += effect;
	work->done++;
	work->elements--;
	return work->elements ? 0 : end_item(frame, DONE, 0);
}

// Answers with what became of an operation, or bars it for ever.
static __always_inline long settle(struct run *run, __u64 id)
{
	struct entry *entry = entry_of(run->caller, id);
	if (!entry || !id || id >> (64 - CLAIM_BITS))
		return end_item(run->frame, FORGOTTEN, 0);
	__u64 known = *(volatile __u64 *)&entry->claim;
	if (id < known >> CLAIM_BITS)
		return end_item(run->frame, FORGOTTEN, 0);
	if (id > known >> CLAIM_BITS) {
		if (__sync_val_compare_and_swap(&entry->claim, known, id << CLAIM_BITS | CLAIM_BARRED) != known)
			return give_up(run);
		return end_item(run->frame, BARRED, 0);
	}
	if ((known & CLAIM_MASK) == CLAIM_BARRED || (known & CLAIM_MASK) == CLAIM_TURNED_DOWN)
		return end_item(run->frame, BARRED, 0);
	if ((known & CLAIM_MASK) == CLAIM_NOTHING_KNOWN)
		return end_item(run->frame, FORGOTTEN, 0);
	__u64 outcome = *(volatile __u64 *)&entry->outcome;
	// Until it is concluded there is no outcome, and a newer identifier that came meanwhile has another one.
	if ((known & CLAIM_MASK) == CLAIM_RUNNING || *(volatile __u64 *)&entry->claim != known)
		return give_up(run);
	return end_item(run->frame, EXECUTED, outcome);
}

static __always_inline long begin_item(struct run *run)
{
	struct frame *frame = run->frame;
	struct work *work = &frame->work;
	__u64 head = frame->words[work->at & 255], place = frame->words[(work->at + 1) & 255];

	work->item = work->at;
	work->item_end = work->at + (__u32)(head >> 48);
	work->elements = head >> 16 & 0xffff;
	work->done = 0;
	work->id = frame->words[(work->at + 2) & 255];
	work->has_read = false;
	work->at += ITEM_WORDS;
	if ((head & 0xff) == SETTLE)
		return settle(run, work->id);

	__u64 slot = place & (MOST_REGIONS - 1), number = (__u32)place;
	void *region = bpf_map_lookup_elem(&regions, &slot);
	run->region = region;
	if (!region || header_of(region, REGION_NUMBER) != number || header_of(region, REGION_NODE) != run->node ||
	    header_of(region, REGION_VIEW) != place >> 32)
		return end_item(frame, REVOKED, 0);
	__u64 s0 = frame->words[(work->item + 3) & 255], s1 = frame->words[(work->item + 4) & 255];
	// Both are compared, so that the time does not tell which one was tried.
	__u64 changes = (s0 ^ header_of(region, REGION_CHANGE)) | (s1 ^ header_of(region, REGION_CHANGE + 1));
	__u64 reads = (s0 ^ header_of(region, REGION_READ)) | (s1 ^ header_of(region, REGION_READ + 1));
	if (changes && reads)
		return end_item(frame, REVOKED, 0);
	work->may_change = changes == 0;
	work->bytes = header_of(region, REGION_BYTES);
	return 0;
}

// Stores those bytes of a word that a transfer has: not the first `skip` and not the last `keep`.
static __always_inline void store(__u64 *word, __u64 value, __u32 skip, __u32 keep)
{
	if (!(skip | keep)) {
		*(volatile __u64 *)word = value;
		return;
	}
	for (__u32 byte = 0; byte < 8; byte++)
		if (byte >= skip && byte < 8 - keep)
			((volatile __u8 *)word)[byte] = value >> 8 * byte;
}

// Moves the next word of a read or write of many.
static __always_inline long move_word(struct run *run)
{
	struct frame *frame = run->frame;
	struct work *work = &frame->work;
	__u64 *body = &frame->words[work->at & 255];
	__u64 head = frame->words[work->element & 255], at = frame->words[(work->element + 1) & 255];
	__u32 moved = (head >> 32 & 0xffff) - work->left;
	bool writes = (head & 0xff) == WRITE;

	work->left--;
	work->at++;
	__u64 *word = run->region ? word_of(run->region, at + 8 * (__u64)moved) : NULL;
	if (!word)
		return 1;
	if (!writes)
		*body = *(volatile __u64 *)word;
	else if (!work->repeats)
		store(word, *body, moved ? 0 : head >> 8 & 7, work->left ? 0 : head >> 16 & 7);
	if (work->left)
		return 0;
	if (writes && !work->repeats) {
		struct entry *entry = entry_of(run->caller, work->id);
		if (entry)
			conclude(entry, work->id, 0, CLAIM_EXECUTED);
	}
	return end_element(frame, writes);
}

static __always_inline __u32 refusal(const struct work *work, __u64 head, __u64 at, bool effect, bool is_word)
{
	__u64 skip = is_word ? 0 : head >> 8 & 7, keep = is_word ? 0 : head >> 16 & 7;
	__u64 length = 8 * (is_word ? 1 : head >> 32 & 0xffff) - skip - keep;

	if (effect && !work->may_change)
		return DENIED;
	if (at & 7)
		return MISALIGNED;
	if (at + skip < at || at + skip > work->bytes || length > work->bytes - at - skip)
		return OUT_OF_BOUNDS;
	return DONE;
}

// Executes a word operation, or begins a transfer.
static __always_inline long execute_element(struct run *run)
{
	struct frame *frame = run->frame;
	struct work *work = &frame->work;
	__u64 head = frame->words[work->at & 255], at = frame->words[(work->at + 1) & 255];
	__u32 what = head & 0xff, all = head >> 32 & 0xffff, body = work->at + ELEMENT_WORDS;
	bool effect = what != READ_WORD && what != READ, is_word = what != READ && what != WRITE;
	__u32 refused = refusal(work, head, at, effect, is_word);
	struct entry *entry = NULL;
	bool repeats = false;
	__u64 before = 0;

	if (!run->region)
		return 1;
	if (effect) {
		entry = entry_of(run->caller, work->id);
		if (!entry)
			return 1;
		enum claimed claimed = claim(entry, work->id, &before);
		if (claimed == BUSY)
			return give_up(run);
		repeats = claimed == REPEATED;
		// What was read before it in this batch would be from after it (F1).
		if (claimed == REFUSED || (repeats && work->has_read))
			return end_item(frame, UNKNOWN, 0);
		if (claimed == TURNED_DOWN && refused == DONE)
			return end_item(frame, UNKNOWN, 0);
		if (claimed == CLAIMED && refused != DONE)
			conclude(entry, work->id, 0, CLAIM_TURNED_DOWN);
	}
	if (!repeats && refused != DONE)
		return end_item(frame, refused, refused == OUT_OF_BOUNDS ? work->bytes : 0);
	work->has_read |= !effect;
	if (!is_word && all) {
		work->element = work->at;
		work->left = all;
		work->repeats = repeats;
		work->at = body;
		return 0;
	}
	if (is_word && !repeats) {
		__u64 first = frame->words[body & 255], second = frame->words[(body + 1) & 255];
		__u64 *word = word_of(run->region, at);
		if (!word)
			return 1;
		if (what == READ_WORD)
			before = *(volatile __u64 *)word;
		else if (what == WRITE_WORD)
			// An exchange and no plain store: it is to be there before anything that comes next.
			(void)__sync_lock_test_and_set(word, first);
		else if (what == COMPARE_SWAP)
			before = __sync_val_compare_and_swap(word, first, second);
		else
			before = __sync_fetch_and_add(word, first);
	}
	if (entry && !repeats)
		conclude(entry, work->id, before, CLAIM_EXECUTED);
	if (is_word)
		frame->words[body & 255] = before;
	work->at = body + all;
	return end_element(frame, effect);
}

static long step(__u32 index __attribute__((unused)), struct run *run)
{
	struct work *work = &run->frame->work;

	if (work->at >= run->words)
		return 1;
	if (work->left)
		return move_word(run);
	return work->elements ? execute_element(run) : begin_item(run);
}

// Whether the frame may be answered; false if it is to be forgotten.
static __always_inline bool execute(struct run *run)
{
	struct frame *frame = run->frame;
	struct work *work = &frame->work;

	work->at = FRAME_WORDS;
	work->left = 0;
	work->elements = 0;
	// Linux before 6.7 verifies the first step alone, and takes away what cannot be reached in it: an element could be, had the item
	// before it been begun elsewhere. So there is a region before any item has named one.
	__u64 slot = frame->words[FRAME_WORDS + 1] & (MOST_REGIONS - 1);
	run->region = bpf_map_lookup_elem(&regions, &slot);
	// Each word of a frame is one step at most.
	bpf_loop(MOST_WORDS, step, run, 0);
	return !run->overtaken && work->at == run->words;
}

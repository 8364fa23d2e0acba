// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Frames, regions and callers as the program sees them: ../mod.rs has their layout, with which all of this must agree.

#pragma once

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define MAGIC 0x50445856u /* "VXDP" */
#define VERSION 1
#define MOST_WORDS 180
#define FRAME_WORDS 4
#define ITEM_WORDS 5
#define ELEMENT_WORDS 2

// Of all processes: ../share.rs cuts them into shares.
#define MOST_PROCESSES 16
#define MOST_NODES (16 * MOST_PROCESSES)
#define MOST_REGIONS (1024 * MOST_PROCESSES)
#define MOST_CALLERS (4096 * MOST_PROCESSES)
#define WINDOW 1024
#define REGION_HEADER_WORDS 512

enum frame_kind { REQUEST = 1, ANSWER = 2, STRANGER = 3 };
enum item_kind { BATCH = 1, SETTLE = 2 };
enum operation { READ_WORD = 1, WRITE_WORD = 2, COMPARE_SWAP = 3, FETCH_ADD = 4, READ = 5, WRITE = 6 };
enum outcome { DONE = 0, REVOKED = 1, DENIED = 2, OUT_OF_BOUNDS = 3, MISALIGNED = 4, UNKNOWN = 5 };
enum settled { BARRED = 0, EXECUTED = 1, FORGOTTEN = 2 };

// The low bits of an entry's claim; the identifier is above them. What was turned down is barred, and a copy of it is turned down again.
enum claim {
	CLAIM_NOTHING_KNOWN = 0,
	CLAIM_RUNNING = 1,
	CLAIM_EXECUTED = 2,
	CLAIM_BARRED = 3,
	CLAIM_TURNED_DOWN = 4,
	CLAIM_BITS = 3,
	CLAIM_MASK = 7,
};

enum counter { ANSWERED, MALFORMED, FORGED, REPLAYED, UNKNOWN_CALLER, OVERTAKEN, COUNTERS };

// Of an owner's region: before its words.
enum region_header { REGION_NUMBER, REGION_VIEW, REGION_CHANGE, REGION_READ = 4, REGION_BYTES = 6, REGION_NODE = 7 };

struct endpoint {
	__u32 address[4];
	__u16 port;
	__u16 zero;
};

struct entry {
	__u64 claim;
	__u64 outcome;
	__u64 serial;
};

struct counted {
	__u64 counts[COUNTERS];
};

// Where the work on a frame stands. Kept in a map, where its values are any to the verifier: every step is then checked once for all of them.
struct work {
	__u32 at;       // next word of the frame
	__u32 item;     // first word of the item
	__u32 item_end; // one past its last
	__u32 element;  // first word of the transfer
	__u32 left;     // words of the transfer that are to be moved
	__u32 elements; // of the item that are to be done
	__u32 done;     // of the item that are done
	__u32 may_change; // whether the key says so
	__u64 bytes;    // of the region
	__u64 id;       // the next identifier of the item
	bool has_read;  // whether this item read anything
	bool repeats;   // whether the transfer was executed before: it is passed over
};

struct frame {
	__u64 words[256];
	struct work work;
};

// How many of a share's places may have something in them, from the first one on.
struct used {
	__u32 nodes;
	__u32 callers;
	__u32 regions;
};

struct region_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(max_entries, REGION_HEADER_WORDS);
	__type(key, __u32);
	__type(value, __u64);
};

struct caller_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 + WINDOW);
	// By size and not by name: of a type that is named in an inner map alone, the object holds no description.
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct entry));
};

// Addresses that are answered, each with the node that they are of.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4 * MOST_NODES);
	__type(key, struct endpoint);
	__type(value, __u32);
} endpoints SEC(".maps");

// By region number modulo its size. Made anew, a region is another element (F4).
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MOST_REGIONS);
	__type(key, __u32);
	__array(values, struct region_map);
} regions SEC(".maps");

// Entry 0 has a caller's key and its node, the others its window.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MOST_CALLERS);
	__type(key, __u32);
	__array(values, struct caller_map);
} callers SEC(".maps");

// By node.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MOST_NODES);
	__type(key, __u32);
	__type(value, struct counted);
} counters SEC(".maps");

// By share. For the processes: the program does not look.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_PROCESSES);
	__type(key, __u32);
	__type(value, struct used);
} shares SEC(".maps");

// The frame that is worked on. A processor's own: nothing else of this program runs on it before the frame is done.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct frame);
} frames SEC(".maps");

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "frames are least significant byte first, and keys of maps are the low halves of words"
#endif

// Keys of maps are looked up from whole words, and what callbacks share has no half ones: to write half of a place on the stack where a
// pointer was is forbidden to whoever has CAP_BPF and not CAP_PERFMON.
static __always_inline void count(__u64 node, enum counter which)
{
	struct counted *counted = bpf_map_lookup_elem(&counters, &node);
	if (counted)
		counted->counts[which]++;
}

// What the steps of one frame share.
struct run {
	struct frame *frame;
	void *caller;
	void *region;
	__u64 node;
	__u64 words;
	__u64 overtaken;
};

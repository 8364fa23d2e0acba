// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The tag of a frame: SipHash-2-4 (Aumasson and Bernstein, 2012) under the caller's key.

#pragma once

#include "layout.h"

#define ROTATE(x, bits) (((x) << (bits)) | ((x) >> (64 - (bits))))

struct sip {
	const struct frame *frame;
	__u64 v0, v1, v2, v3;
	__u64 words;
};

static __always_inline void sip_round(struct sip *s)
{
	__u64 v0 = s->v0, v1 = s->v1, v2 = s->v2, v3 = s->v3;

	v0 += v1;
	v1 = ROTATE(v1, 13);
	v1 ^= v0;
	v0 = ROTATE(v0, 32);
	v2 += v3;
	v3 = ROTATE(v3, 16);
	v3 ^= v2;
	v0 += v3;
	v3 = ROTATE(v3, 21);
	v3 ^= v0;
	v2 += v1;
	v1 = ROTATE(v1, 17);
	v1 ^= v2;
	v2 = ROTATE(v2, 32);
	s->v0 = v0;
	s->v1 = v1;
	s->v2 = v2;
	s->v3 = v3;
}

static __always_inline void sip_word(struct sip *s, __u64 word)
{
	s->v3 ^= word;
	sip_round(s);
	sip_round(s);
	s->v0 ^= word;
}

static long sip_step(__u32 at, struct sip *s)
{
	if (at >= s->words)
		return 1;
	sip_word(s, at == 3 ? 0 : s->frame->words[at & 255]);
	return 0;
}

// SipHash-2-4 of a frame with its tag taken for 0.
static __always_inline __u64 tag_of(const struct frame *frame, __u32 words, __u64 k0, __u64 k1)
{
	struct sip s = {
		.frame = frame,
		.v0 = k0 ^ 0x736f6d6570736575ull,
		.v1 = k1 ^ 0x646f72616e646f6dull,
		.v2 = k0 ^ 0x6c7967656e657261ull,
		.v3 = k1 ^ 0x7465646279746573ull,
		.words = words,
	};

	bpf_loop(MOST_WORDS, sip_step, &s, 0);
	sip_word(&s, (__u64)(words * 8) << 56);
	s.v2 ^= 0xff;
	sip_round(&s);
	sip_round(&s);
	sip_round(&s);
	sip_round(&s);
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

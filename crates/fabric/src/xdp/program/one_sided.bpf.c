// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Executes one-sided operations in the receive path: takes a frame of requests apart in place, carries them out on regions that are maps,
// writes the outcomes where the requests stood, and sends the frame back. Layout of frames, regions and callers: ../mod.rs, which the
// constants here must agree with.

#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "check.h"
#include "execute.h"
#include "tag.h"

#define IP_NOT_FIRST_OR_MORE 0x3fff
#define TTL 64
// Bytes that Linux sums at once, before 6.13.
#define MOST_SUMMED 512

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static __always_inline void swap_macs(struct ethhdr *eth)
{
	unsigned char mac[ETH_ALEN];
	__builtin_memcpy(mac, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, mac, ETH_ALEN);
}

// Answers what the frame at `offset` asks of `node`. True if it is to be sent back.
static __always_inline bool answer(struct xdp_md *ctx, struct frame *frame, __u32 node, __u32 offset, __u32 bytes)
{
	if (bytes < 8 * FRAME_WORDS || bytes > 8 * MOST_WORDS || bytes & 7 ||
	    bpf_xdp_load_bytes(ctx, offset, frame->words, bytes)) {
		count(node, MALFORMED);
		return false;
	}
	__u32 words = bytes / 8;
	__u64 head = frame->words[0], serial = frame->words[2];
	if ((__u32)head != MAGIC || (head >> 32 & 0xff) != VERSION || (head >> 40 & 0xff) != REQUEST || head >> 48 != words) {
		count(node, MALFORMED);
		return false;
	}
	__u64 slot = (__u32)frame->words[1], zero = 0;
	void *caller = bpf_map_lookup_elem(&callers, &slot);
	struct entry *key = caller ? bpf_map_lookup_elem(caller, &zero) : NULL;
	if (!key || key->serial != node) {
		// Nobody can say so with a tag, for nobody here has its key. Not larger than what asked for it.
		frame->words[0] = (head & ~0xff0000000000ull) | (__u64)STRANGER << 40;
		frame->words[3] = 0;
		count(node, UNKNOWN_CALLER);
		return true;
	}
	__u64 k0 = key->claim, k1 = key->outcome;
	if (frame->words[3] != tag_of(frame, words, k0, k1)) {
		count(node, FORGED);
		return false;
	}
	struct run run = { .frame = frame, .caller = caller, .node = node, .words = words };
	if (!is_well_formed(&run)) {
		count(node, MALFORMED);
		return false;
	}
	struct entry *entry = entry_of(caller, serial);
	if (!entry)
		return false;
	__u64 newest = *(volatile __u64 *)&entry->serial;
	if (serial <= newest || __sync_val_compare_and_swap(&entry->serial, newest, serial) != newest) {
		count(node, REPLAYED);
		return false;
	}
	if (!execute(&run)) {
		count(node, OVERTAKEN);
		return false;
	}
	frame->words[0] = (head & ~0xff0000000000ull) | (__u64)ANSWER << 40;
	frame->words[3] = tag_of(frame, words, k0, k1);
	count(node, ANSWERED);
	return true;
}

SEC("xdp")
int one_sided(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct endpoint here = {};
	struct udphdr *udp;
	__u32 payload, zero = 0;
	bool is_v4;

	if ((void *)(eth + 1) > end)
		return XDP_PASS;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(eth + 1);
		if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl != 5 || ip->protocol != IPPROTO_UDP ||
		    ip->frag_off & bpf_htons(IP_NOT_FIRST_OR_MORE))
			return XDP_PASS;
		udp = (void *)(ip + 1);
		if ((void *)(udp + 1) > end || bpf_ntohs(ip->tot_len) != sizeof(*ip) + bpf_ntohs(udp->len))
			return XDP_PASS;
		here.address[2] = bpf_htonl(0xffff);
		here.address[3] = ip->daddr;
		payload = sizeof(*eth) + sizeof(*ip) + sizeof(*udp);
		is_v4 = true;
	} else if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = (void *)(eth + 1);
		if ((void *)(ip + 1) > end || ip->nexthdr != IPPROTO_UDP)
			return XDP_PASS;
		udp = (void *)(ip + 1);
		if ((void *)(udp + 1) > end || ip->payload_len != udp->len)
			return XDP_PASS;
		__builtin_memcpy(here.address, &ip->daddr, sizeof(here.address));
		payload = sizeof(*eth) + sizeof(*ip) + sizeof(*udp);
		is_v4 = false;
	} else {
		return XDP_PASS;
	}
	here.port = udp->dest;
	__u32 *known = bpf_map_lookup_elem(&endpoints, &here);
	if (!known)
		return XDP_PASS;
	__u32 node = *known;
	__u32 bytes = bpf_ntohs(udp->len) - sizeof(*udp);
	struct frame *frame = bpf_map_lookup_elem(&frames, &zero);
	if (!frame || !answer(ctx, frame, node, payload, bytes))
		return XDP_DROP;
	__u32 answered = bytes & 2047;
	if (answered < 8 || answered > 8 * MOST_WORDS || bpf_xdp_store_bytes(ctx, payload, frame->words, answered))
		return XDP_DROP;

	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	eth = data;
	if ((void *)(eth + 1) > end)
		return XDP_DROP;
	swap_macs(eth);
	if (is_v4) {
		struct iphdr *ip = (void *)(eth + 1);
		udp = (void *)(ip + 1);
		if ((void *)(udp + 1) > end)
			return XDP_DROP;
		__be32 from = ip->saddr;
		ip->saddr = ip->daddr;
		ip->daddr = from;
		ip->ttl = TTL;
		ip->check = 0;
		__u64 sum = 0;
		__u16 *halves = (void *)ip;
		for (int i = 0; i < 10; i++)
			sum += halves[i];
		ip->check = ~fold(sum);
		// RFC 768: none. The tag says more.
		udp->check = 0;
	} else {
		struct ipv6hdr *ip = (void *)(eth + 1);
		udp = (void *)(ip + 1);
		if ((void *)(udp + 1) > end)
			return XDP_DROP;
		struct in6_addr from = ip->saddr;
		ip->saddr = ip->daddr;
		ip->daddr = from;
		ip->hop_limit = TTL;
	}
	__be16 from = udp->source;
	udp->source = udp->dest;
	udp->dest = from;
	if (!is_v4) {
		struct ipv6hdr *ip = (void *)(eth + 1);
		// RFC 8200 section 8.1: with the pseudo-header.
		__u64 sum = 0;
		for (__u32 at = 0; at < 8 * MOST_WORDS; at += MOST_SUMMED) {
			__u32 part = answered > at ? (answered - at) & 2040 : 0;
			part = part < MOST_SUMMED ? part : MOST_SUMMED;
			sum = bpf_csum_diff(NULL, 0, (__be32 *)(frame->words + at / 8), part, sum);
		}
		sum += udp->source + udp->dest + udp->len + udp->len + bpf_htons(IPPROTO_UDP);
		for (int i = 0; i < 4; i++)
			sum += (__u64)ip->saddr.in6_u.u6_addr32[i] + ip->daddr.in6_u.u6_addr32[i];
		__u16 check = ~fold(sum);
		udp->check = check ? check : 0xffff;
	}
	return XDP_TX;
}

// For the end of a virtual link whose other end answers: there, answers arrive only where some program receives.
SEC("xdp")
int pass(struct xdp_md *ctx __attribute__((unused)))
{
	return XDP_PASS;
}

char _license[] SEC("license") = "MIT OR Apache-2.0";
